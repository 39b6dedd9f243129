/* The command line. Every run is bounded three times: by messages, by seconds of load, and by seconds in all. */
#ifndef PYMQ_LOAD_OPTIONS_H
#define PYMQ_LOAD_OPTIONS_H

#include "message.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CONNECTIONS_MAX 4096
#define WINDOW_MAX 4096
#define QUEUES_MAX 1024
#define FOLLOW_COUNT_MAX 10000000

enum mode { MODE_SEND, MODE_PULL, MODE_DELIVER, MODE_FOLLOW, MODE_AWAIT, MODE_SYNC_PROBE };

/* What follows a message that was acknowledged. */
enum follow_up { FOLLOW_COMMIT, FOLLOW_SEND_BACK };

struct options {
    enum mode mode;
    const char *address;
    const char *topic;
    const char *group;
    const char *broker_name;
    const char *ledger_path;
    const char *directory; /* sync-probe: where to write */
    const char *added;     /* more properties, NAME=VALUE;NAME=VALUE; NULL: none */
    const char *sql;       /* the expression consumers subscribe with; NULL: everything, by tag */
    enum follow_up follow_up;
    enum codec codec;
    enum properties properties;
    unsigned connections;
    unsigned window;
    unsigned queues;
    unsigned batch;      /* messages a send request */
    unsigned pull_batch; /* messages a pull request asks for */
    size_t body_size;
    uint64_t count_max;
    double duration_s;
    double timeout_s;
    double rate; /* messages a second on a schedule; 0 is as fast as answers come */
    uint32_t sender;
    pid_t watch_pid;
    bool create_topic;
    bool settle; /* end the window only when the queues show every acknowledged message */
};

/* Fails with EXIT_USAGE and a sentence. */
void options_parse(struct options *options, int argc, char **argv);

const char *properties_name(enum properties properties);
const char *codec_name(enum codec codec);

#endif
