/* See options.h. */
#include "options.h"

#include "fail.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: load send|pull|deliver|follow|await|sync-probe [options]; one JSON object on stdout\n"
    "  send        as fast as the answers of --connections x --window requests come, or --rate messages a second\n"
    "  pull        catch-up: read the topic's queues from 0 to where they end now\n"
    "  deliver     send --rate messages a second, receive them by long polling, measure from intended send to receipt\n"
    "  follow      send --count messages, then commit each (halves of transactions) or send each back\n"
    "  await       until the topic's queues show --count messages that somebody else puts there\n"
    "  sync-probe  write --count records of --body-size bytes, --batch at a time, with fdatasync after each time\n"
    "\n"
    "  --broker HOST:PORT      --topic NAME            --queues N (8)          --no-create-topic\n"
    "  --codec json|rocketmq   --properties none|java|java-tags|java-keys      --body-size BYTES (128)\n"
    "  --connections N (1)     --window N (1)          --batch N (1)           --pull-batch N (32)\n"
    "  --count MESSAGES        --duration-s S (10)     --timeout-s S (60)      --rate PER_SECOND (0)\n"
    "  --group NAME            --broker-name NAME      --sender-id N (the process)\n"
    "  --ledger FILE           what was acknowledged and received, a line each (README.md)\n"
    "  --watch-pid PID         report this process's CPU time over the window\n"
    "  --no-settle             do not wait until the queues show what was acknowledged\n"
    "  --directory DIR         sync-probe: where to write\n"
    "  --add-properties K=V;K=V  besides those of --properties\n"
    "  --sql EXPRESSION        pull: subscribe with it instead of everything\n"
    "  --follow-up commit|send-back\n";

enum option_code {
    OPTION_BROKER = 256,
    OPTION_TOPIC,
    OPTION_QUEUES,
    OPTION_NO_CREATE_TOPIC,
    OPTION_CODEC,
    OPTION_PROPERTIES,
    OPTION_BODY_SIZE,
    OPTION_CONNECTIONS,
    OPTION_WINDOW,
    OPTION_BATCH,
    OPTION_PULL_BATCH,
    OPTION_COUNT,
    OPTION_DURATION,
    OPTION_TIMEOUT,
    OPTION_RATE,
    OPTION_GROUP,
    OPTION_BROKER_NAME,
    OPTION_SENDER,
    OPTION_LEDGER,
    OPTION_WATCH_PID,
    OPTION_NO_SETTLE,
    OPTION_DIRECTORY,
    OPTION_ADD_PROPERTIES,
    OPTION_SQL,
    OPTION_FOLLOW_UP,
};

static const struct option long_options[] = {
    {"broker", required_argument, NULL, OPTION_BROKER},
    {"topic", required_argument, NULL, OPTION_TOPIC},
    {"queues", required_argument, NULL, OPTION_QUEUES},
    {"no-create-topic", no_argument, NULL, OPTION_NO_CREATE_TOPIC},
    {"codec", required_argument, NULL, OPTION_CODEC},
    {"properties", required_argument, NULL, OPTION_PROPERTIES},
    {"body-size", required_argument, NULL, OPTION_BODY_SIZE},
    {"connections", required_argument, NULL, OPTION_CONNECTIONS},
    {"window", required_argument, NULL, OPTION_WINDOW},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"pull-batch", required_argument, NULL, OPTION_PULL_BATCH},
    {"count", required_argument, NULL, OPTION_COUNT},
    {"duration-s", required_argument, NULL, OPTION_DURATION},
    {"timeout-s", required_argument, NULL, OPTION_TIMEOUT},
    {"rate", required_argument, NULL, OPTION_RATE},
    {"group", required_argument, NULL, OPTION_GROUP},
    {"broker-name", required_argument, NULL, OPTION_BROKER_NAME},
    {"sender-id", required_argument, NULL, OPTION_SENDER},
    {"ledger", required_argument, NULL, OPTION_LEDGER},
    {"watch-pid", required_argument, NULL, OPTION_WATCH_PID},
    {"no-settle", no_argument, NULL, OPTION_NO_SETTLE},
    {"directory", required_argument, NULL, OPTION_DIRECTORY},
    {"add-properties", required_argument, NULL, OPTION_ADD_PROPERTIES},
    {"sql", required_argument, NULL, OPTION_SQL},
    {"follow-up", required_argument, NULL, OPTION_FOLLOW_UP},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static const char *const codec_names[] = {[CODEC_JSON] = "json", [CODEC_ROCKETMQ] = "rocketmq"};
static const char *const properties_names[] = {
    [PROPERTIES_NONE] = "none",
    [PROPERTIES_JAVA] = "java",
    [PROPERTIES_JAVA_TAGS] = "java-tags",
    [PROPERTIES_JAVA_KEYS] = "java-keys",
};
static const char *const follow_up_names[] = {[FOLLOW_COMMIT] = "commit", [FOLLOW_SEND_BACK] = "send-back"};
static const char *const mode_names[] = {
    [MODE_SEND] = "send",
    [MODE_PULL] = "pull",
    [MODE_DELIVER] = "deliver",
    [MODE_FOLLOW] = "follow",
    [MODE_AWAIT] = "await",
    [MODE_SYNC_PROBE] = "sync-probe",
};

const char *properties_name(enum properties properties) { return properties_names[properties]; }

const char *codec_name(enum codec codec) { return codec_names[codec]; }

static unsigned pick(const char *what, const char *given, const char *const *names, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        if (strcmp(given, names[i]) == 0)
            return i;
    fail(EXIT_USAGE, "%s '%s' is unknown; see --help", what, given);
}
#define PICK(what, given, names) pick(what, given, names, (unsigned)(sizeof names / sizeof names[0]))

static double number(const char *option, double smallest, double largest) {
    char *end = NULL;
    errno = 0;
    double value = strtod(optarg, &end);
    if (errno != 0 || end == optarg || *end != 0 || !(value >= smallest && value <= largest))
        fail(EXIT_USAGE, "--%s is '%s' and must be a number from %.0f to %.0f", option, optarg, smallest, largest);
    return value;
}

static void take_option(struct options *options, int code, const char *name) {
    switch (code) {
    case OPTION_BROKER: options->address = optarg; break;
    case OPTION_TOPIC: options->topic = optarg; break;
    case OPTION_QUEUES: options->queues = (unsigned)number(name, 1, QUEUES_MAX); break;
    case OPTION_NO_CREATE_TOPIC: options->create_topic = false; break;
    case OPTION_CODEC: options->codec = (enum codec)PICK("codec", optarg, codec_names); break;
    case OPTION_PROPERTIES: options->properties = (enum properties)PICK("properties", optarg, properties_names); break;
    case OPTION_BODY_SIZE: options->body_size = (size_t)number(name, BODY_STAMP_SIZE, 4 << 20); break;
    case OPTION_CONNECTIONS: options->connections = (unsigned)number(name, 1, CONNECTIONS_MAX); break;
    case OPTION_WINDOW: options->window = (unsigned)number(name, 1, WINDOW_MAX); break;
    case OPTION_BATCH: options->batch = (unsigned)number(name, 1, BATCH_COUNT_MAX); break;
    case OPTION_PULL_BATCH: options->pull_batch = (unsigned)number(name, 1, 1024); break;
    case OPTION_COUNT: options->count_max = (uint64_t)number(name, 1, 1e12); break;
    case OPTION_DURATION: options->duration_s = number(name, 0, 3600); break;
    case OPTION_TIMEOUT: options->timeout_s = number(name, 0, 7200); break;
    case OPTION_RATE: options->rate = number(name, 0, 1e7); break;
    case OPTION_GROUP: options->group = optarg; break;
    case OPTION_BROKER_NAME: options->broker_name = optarg; break;
    case OPTION_SENDER: options->sender = (uint32_t)number(name, 0, UINT32_MAX); break;
    case OPTION_LEDGER: options->ledger_path = optarg; break;
    case OPTION_WATCH_PID: options->watch_pid = (pid_t)number(name, 1, 1 << 30); break;
    case OPTION_NO_SETTLE: options->settle = false; break;
    case OPTION_DIRECTORY: options->directory = optarg; break;
    case OPTION_ADD_PROPERTIES: options->added = optarg; break;
    case OPTION_SQL: options->sql = optarg; break;
    case OPTION_FOLLOW_UP: options->follow_up = (enum follow_up)PICK("follow-up", optarg, follow_up_names); break;
    case 'h': fputs(usage, stdout); exit(0);
    default: fail(EXIT_USAGE, "see --help");
    }
}

static void check(const struct options *options) {
    if (options->mode == MODE_SYNC_PROBE) {
        if (options->directory == NULL)
            fail(EXIT_USAGE, "sync-probe needs --directory");
        return;
    }
    if (options->address == NULL || options->topic == NULL)
        fail(EXIT_USAGE, "--broker and --topic are needed");
    if (options->mode == MODE_DELIVER && options->rate <= 0)
        fail(EXIT_USAGE, "deliver needs --rate: its schedule is what the delay is measured from");
    if (options->mode == MODE_FOLLOW && (options->batch > 1 || options->count_max > FOLLOW_COUNT_MAX))
        fail(EXIT_USAGE, "follow keeps each message in mind: no --batch, and --count at most %d", FOLLOW_COUNT_MAX);
    if (options->rate > 0 && options->batch > 1)
        fail(EXIT_USAGE, "--rate counts single messages; it does not go with --batch");
}

void options_parse(struct options *options, int argc, char **argv) {
    *options = (struct options){
        .group = "load",
        .broker_name = "broker-a",
        .connections = 1,
        .window = 1,
        .queues = 8,
        .batch = 1,
        .pull_batch = 32,
        .body_size = 128,
        .count_max = 1000000000000ULL,
        .duration_s = 10,
        .timeout_s = 60,
        .sender = (uint32_t)getpid(),
        .create_topic = true,
        .settle = true,
    };
    if (argc < 2)
        fail(EXIT_USAGE, "no mode given\n%s", usage);
    if (strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        exit(0);
    }
    options->mode = (enum mode)PICK("mode", argv[1], mode_names);
    int code, index = 0;
    while ((code = getopt_long(argc - 1, argv + 1, "h", long_options, &index)) != -1)
        take_option(options, code, long_options[index].name);
    if (optind != argc - 1)
        fail(EXIT_USAGE, "'%s' is not an option; see --help", argv[optind + 1]);
    check(options);
}
