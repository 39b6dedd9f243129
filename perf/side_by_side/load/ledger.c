/* See ledger.h. */
#include "ledger.h"

#include "fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEDGER_BUFFER_SIZE (1 << 20)
#define LEDGER_LINE_SIZE_MAX 1024

struct ledger {
    int fd;
    size_t size;
    char topic[256];
    size_t topic_size;
    char buffer[LEDGER_BUFFER_SIZE];
};

static struct ledger *open_ledger; /* for atexit, which takes no argument; a run has one ledger */

static void write_out(struct ledger *ledger) {
    size_t written = 0;
    while (written < ledger->size) {
        ssize_t size = write(ledger->fd, ledger->buffer + written, ledger->size - written);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0) {
            static const char problem[] = "load: the ledger could not be written\n";
            ssize_t ignored = write(STDERR_FILENO, problem, sizeof problem - 1);
            (void)ignored;
            _exit(EXIT_MACHINE); /* fail() would come back here through atexit */
        }
        written += (size_t)size;
    }
    ledger->size = 0;
}

static void put_text(struct ledger *ledger, const char *text, size_t size, char separator) {
    memcpy(ledger->buffer + ledger->size, text, size);
    ledger->buffer[ledger->size + size] = separator;
    ledger->size += size + 1;
}

static void put_number(struct ledger *ledger, int64_t value, char separator) {
    char digits[20];
    size_t at = sizeof digits;
    if (value < 0) {
        put_text(ledger, "-", 1, separator);
        return;
    }
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    put_text(ledger, digits + at, sizeof digits - at, separator);
}

static void close_at_exit(void) {
    if (open_ledger != NULL)
        ledger_close(open_ledger);
}

struct ledger *ledger_open(const char *path, const char *topic) {
    static const char head[] = "# pymq-ledger 1\n"
                               "# kind\ttopic\tqueue\tqueueOffset\tmsgId\tsender\tsequence\tintendedNs\tsentNs\tdoneNs";
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        fail(EXIT_MACHINE, "the ledger '%s' cannot be written: %s", path, strerror(errno));
    struct ledger *ledger = open_ledger = malloc(sizeof *ledger);
    if (ledger == NULL || strlen(topic) >= sizeof ledger->topic)
        fail(EXIT_MACHINE, "no ledger: no memory, or the topic '%s' is too long", topic);
    ledger->size = 0;
    ledger->topic_size = strlen(topic);
    memcpy(ledger->topic, topic, ledger->topic_size);
    ledger->fd = fd;
    put_text(ledger, head, sizeof head - 1, '\n');
    atexit(close_at_exit);
    return ledger;
}

void ledger_write(struct ledger *ledger, const struct ledger_entry *entry) {
    if (ledger == NULL)
        return;
    if (LEDGER_BUFFER_SIZE - ledger->size < LEDGER_LINE_SIZE_MAX)
        write_out(ledger);
    put_text(ledger, &entry->kind, 1, '\t');
    put_text(ledger, ledger->topic, ledger->topic_size, '\t');
    put_number(ledger, entry->queue, '\t');
    put_number(ledger, entry->queue_offset, '\t');
    if (entry->msg_id.size > 0 && entry->msg_id.size < LEDGER_LINE_SIZE_MAX / 4)
        put_text(ledger, entry->msg_id.bytes, entry->msg_id.size, '\t');
    else
        put_text(ledger, "-", 1, '\t');
    put_number(ledger, entry->sender, '\t');
    put_number(ledger, entry->sequence, '\t');
    put_number(ledger, entry->intended_ns, '\t');
    put_number(ledger, entry->sent_ns, '\t');
    put_number(ledger, entry->done_ns, '\n');
}

void ledger_close(struct ledger *ledger) {
    if (ledger == NULL)
        return;
    write_out(ledger);
    close(ledger->fd);
    if (open_ledger == ledger)
        open_ledger = NULL;
    free(ledger);
}
