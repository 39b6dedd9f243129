/* bare_loop: the floor. A server that does for a send what any broker must, and nothing else.
 *
 * One thread on epoll: reads frames with JSON headers, walks the header to find opaque and properties, computes the
 * CRC-32 of the body, copies a record of the right size into a mapped file and answers with the fields a Java client
 * reads. It has no topics, no queues, no index, no second thread, and loses everything when it ends: what it costs is
 * what a send costs before anybody has promised anything.
 *
 *   bare_loop DIRECTORY     prints "listening on 127.0.0.1:PORT" and serves until it is killed */
#include "bytes.h"
#include "decode.h"
#include "encode.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_SIZE (4ULL << 30) /* never written twice: the run is over before it is full */
#define CLIENTS_MAX 256
#define BUFFER_SIZE (1 << 20)
#define EVENTS_MAX 64
#define RECORD_OVERHEAD 91 /* fields, topic length and properties length of a record with IPv4 hosts */
#define BROKER_PROPERTIES_SIZE 70

struct client {
    int fd;
    size_t in_size;
    size_t out_size;
    uint8_t in[BUFFER_SIZE];
    uint8_t out[BUFFER_SIZE];
};

static uint32_t crc_tables[8][256];
static uint8_t *log_bytes;
static uint64_t log_position;
static uint64_t served;

static void die(const char *what) {
    fprintf(stderr, "bare_loop: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void make_crc_tables(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320U : 0);
        crc_tables[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int table = 1; table < 8; table++)
            crc_tables[table][i] = crc_tables[table - 1][i] >> 8 ^ crc_tables[0][crc_tables[table - 1][i] & 0xFF];
}

/* Eight bytes a step through eight tables. */
static uint32_t crc32_of(const uint8_t *source, size_t size) {
    uint32_t crc = ~0U;
    for (; size >= 8; source += 8, size -= 8) {
        uint32_t low, high;
        memcpy(&low, source, 4);
        memcpy(&high, source + 4, 4);
        low ^= crc;
        crc = crc_tables[7][low & 0xFF] ^ crc_tables[6][low >> 8 & 0xFF] ^ crc_tables[5][low >> 16 & 0xFF] ^
              crc_tables[4][low >> 24] ^ crc_tables[3][high & 0xFF] ^ crc_tables[2][high >> 8 & 0xFF] ^
              crc_tables[1][high >> 16 & 0xFF] ^ crc_tables[0][high >> 24];
    }
    for (; size > 0; source++, size--)
        crc = crc >> 8 ^ crc_tables[0][(crc ^ *source) & 0xFF];
    return ~crc;
}

struct header {
    const char *opaque;
    size_t opaque_size;
    const char *properties;
    size_t properties_size;
};

/* Walk every string of the header, as a broker that looks its fields up must. */
static void walk_header(const char *at, const char *end, struct header *header) {
    const char *key = NULL;
    size_t key_size = 0;
    while (at < end && (at = memchr(at, '"', (size_t)(end - at))) != NULL) {
        const char *close = memchr(at + 1, '"', (size_t)(end - at - 1));
        if (close == NULL)
            return;
        bool is_key = close + 1 < end && close[1] == ':';
        if (is_key) {
            key = at + 1;
            key_size = (size_t)(close - key);
            if (key_size == 6 && memcmp(key, "opaque", 6) == 0) {
                header->opaque = close + 2;
                while (close + 2 + header->opaque_size < end && close[2 + header->opaque_size] != ',')
                    header->opaque_size++;
            }
        } else if (key_size == 1 && *key == 'i') {
            header->properties = at + 1;
            header->properties_size = (size_t)(close - at - 1);
        }
        at = close + 1;
    }
}

static void append(const uint8_t *body, size_t body_size, const struct header *header) {
    size_t properties_size = header->properties_size + BROKER_PROPERTIES_SIZE;
    size_t size = RECORD_OVERHEAD + body_size + properties_size;
    if (log_position + size > LOG_SIZE) {
        errno = EFBIG;
        die("the log is full; send less");
    }
    uint8_t *target = log_bytes + log_position;
    put_be32(target, (uint32_t)size);
    put_be32(target + 4, 0xDAA320A7U);
    put_be32(target + 8, crc32_of(body, body_size));
    put_be64(target + 20, served);
    put_be64(target + 28, log_position);
    put_be64(target + 40, (uint64_t)wall_ms());
    memcpy(target + 88, body, body_size);
    memcpy(target + 88 + body_size, header->properties, header->properties_size);
    log_position += size;
}

static size_t answer(uint8_t *target, const struct header *header) {
    static const char begin[] = "{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"transactionId\":\"";
    static const char middle[] = "\",\"TRACE_ON\":\"true\",\"MSG_REGION\":\"DefaultRegion\",\"queueOffset\":\"";
    static const char after[] = "\"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":";
    static const char end[] = ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}";
    uint8_t *at = target + FRAME_PREFIX_SIZE;
#define PUT(text, size) (memcpy(at, text, size), at += (size))
    PUT(begin, sizeof begin - 1);
    put_hex(at, served, 32);
    at += 32;
    PUT("\",\"msgId\":\"", 11);
    put_hex(at, log_position, 32);
    at += 32;
    PUT(middle, sizeof middle - 1);
    put_digits(at, served % 1000000, 6);
    at += 6;
    PUT(after, sizeof after - 1);
    PUT(header->opaque, header->opaque_size);
    PUT(end, sizeof end - 1);
#undef PUT
    size_t size = (size_t)(at - target);
    put_be32(target, (uint32_t)(size - 4));
    put_be32(target + 4, (uint32_t)(size - FRAME_PREFIX_SIZE));
    return size;
}

static void serve(struct client *client) {
    size_t at = 0;
    int64_t size;
    while ((size = frame_size(client->in + at, client->in_size - at)) > 0) {
        const uint8_t *frame = client->in + at;
        size_t header_size = get_be32(frame + 4) & 0xFFFFFF;
        struct header header = {0};
        if (FRAME_PREFIX_SIZE + header_size > (size_t)size)
            exit(1);
        const char *text = (const char *)frame + FRAME_PREFIX_SIZE;
        walk_header(text, text + header_size, &header);
        if (header.opaque == NULL || client->out_size + 1024 > BUFFER_SIZE)
            exit(1);
        append(frame + FRAME_PREFIX_SIZE + header_size, (size_t)size - FRAME_PREFIX_SIZE - header_size, &header);
        served++;
        client->out_size += answer(client->out + client->out_size, &header);
        at += (size_t)size;
    }
    if (size < 0)
        exit(1);
    memmove(client->in, client->in + at, client->in_size - at);
    client->in_size -= at;
}

/* False when the client has gone. */
static bool turn(struct client *client) {
    ssize_t received = recv(client->fd, client->in + client->in_size, BUFFER_SIZE - client->in_size, 0);
    if (received <= 0)
        return received < 0 && (errno == EAGAIN || errno == EINTR);
    client->in_size += (size_t)received;
    serve(client);
    size_t sent = 0;
    while (sent < client->out_size) {
        ssize_t size = send(client->fd, client->out + sent, client->out_size - sent, MSG_NOSIGNAL);
        if (size < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        sent += size < 0 ? 0 : (size_t)size; /* the generator always reads, so this ends */
    }
    client->out_size = 0;
    return true;
}

static int listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, CLIENTS_MAX) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        die("listening");
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

static void map_log(const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/bare_loop.log", directory);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)LOG_SIZE) != 0)
        die(path);
    log_bytes = mmap(NULL, LOG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (log_bytes == MAP_FAILED)
        die("mmap");
    close(fd);
}

int main(int argc, char **argv) {
    struct epoll_event events[EVENTS_MAX];
    if (argc != 2) {
        fputs("usage: bare_loop DIRECTORY\n", stderr);
        return 2;
    }
    make_crc_tables();
    map_log(argv[1]);
    int listener = listen_on_loopback(), epoll_fd = epoll_create1(EPOLL_CLOEXEC), on = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int found = epoll_wait(epoll_fd, events, EVENTS_MAX, -1);
        for (int i = 0; i < found; i++) {
            struct client *client = events[i].data.ptr;
            if (client != NULL) {
                if (!turn(client)) {
                    close(client->fd);
                    free(client);
                }
                continue;
            }
            client = calloc(1, sizeof *client);
            int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (client == NULL || fd < 0)
                die("accept");
            client->fd = fd;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            event.data.ptr = client;
            epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
        }
    }
}
