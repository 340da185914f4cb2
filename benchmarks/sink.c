// A broker that costs nothing: answers as 0.10.2 does, on one thread, and keeps only the last sets of each partition,
// because the proxy reads its first one back and the fetch case reads what was written. What it is asked is trusted.
//
//   sink PORT PARTITIONS
//
// ApiVersions 0, Metadata 0 to 2, ListOffsets 0 and 1, Fetch 0 to 3, Produce 0 to 2; any topic, one broker, id 0.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 18 };
enum { PARTITIONS_MAX = 256, SETS_KEPT = 20, EVENTS_MAX = 256, RECEIVE_BYTES = 1 << 18 };

typedef struct { uint8_t *data; size_t size, room; } bytes;
typedef struct { int descriptor, is_waiting; bytes in, out; size_t sent; } connection;
typedef struct { uint8_t *data; size_t size; uint64_t last; } message_set;
typedef struct { message_set sets[SETS_KEPT]; uint64_t count, end; } partition;

static partition partitions[PARTITIONS_MAX];
static int partition_count, port, epoll;
static bytes *out;

static uint16_t read16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }
static uint32_t read32(const uint8_t *at) { return (uint32_t)read16(at) << 16 | read16(at + 2); }
static uint64_t read64(const uint8_t *at) { return (uint64_t)read32(at) << 32 | read32(at + 4); }
static void store32(uint8_t *at, uint32_t value) { value = htonl(value); memcpy(at, &value, 4); }
static void store64(uint8_t *at, uint64_t value) { store32(at, value >> 32); store32(at + 4, (uint32_t)value); }

static void reserve(bytes *buffer, size_t more) {
    if (buffer->size + more <= buffer->room) return;
    buffer->room = 2 * (buffer->size + more);
    buffer->data = realloc(buffer->data, buffer->room);
    if (!buffer->data) abort();
}
static void put(const void *data, size_t size) { reserve(out, size); memcpy(out->data + out->size, data, size); out->size += size; }
static void put8(uint8_t value) { put(&value, 1); }
static void put16(uint16_t value) { value = htons(value); put(&value, 2); }
static void put32(uint32_t value) { value = htonl(value); put(&value, 4); }
static void put64(uint64_t value) { put32(value >> 32); put32((uint32_t)value); }

// Takes a number or a name from the request and puts it into the answer.
static uint32_t pass32(const uint8_t **at) { uint32_t value = read32(*at); put(*at, 4); *at += 4; return value; }
static void pass_name(const uint8_t **at) { size_t size = 2 + read16(*at); put(*at, size); *at += size; }

static uint64_t append(partition *log, const uint8_t *data, size_t size) {
    uint64_t base = log->end;
    size_t last = 0;  // where the last message begins: a set of several has no wrapper
    for (size_t at = 0; at + 12 <= size; at += 12 + read32(data + at + 8)) { last = at; log->end = base + read64(data + at) + 1; }
    message_set *kept = &log->sets[log->count++ % SETS_KEPT];
    kept->data = realloc(kept->data, size);
    if (!kept->data) abort();
    memcpy(kept->data, data, kept->size = size);
    for (size_t at = 0; at <= last; at += 12 + read32(kept->data + at + 8)) store64(kept->data + at, base + read64(kept->data + at));
    kept->last = log->end - 1;
    return base;
}
static void produce(const uint8_t *at, int version) {
    at += 2 + 4;  // acks, timeout
    for (uint32_t topics = pass32(&at); topics; topics--) {
        pass_name(&at);
        for (uint32_t left = pass32(&at); left; left--) {
            uint32_t number = pass32(&at), size = read32(at);
            put16(0);
            put64(append(&partitions[number % PARTITIONS_MAX], at + 4, size));
            if (version >= 2) put64((uint64_t)-1);
            at += 4 + size;
        }
    }
    if (version >= 1) put32(0);
}
static void fetch(const uint8_t *at, int version) {
    if (version >= 1) put32(0);
    at += 4 + 4 + 4 + (version >= 3 ? 4 : 0);  // replica, wait, least, most
    for (uint32_t topics = pass32(&at); topics; topics--) {
        pass_name(&at);
        for (uint32_t left = pass32(&at); left; left--) {
            partition *log = &partitions[pass32(&at) % PARTITIONS_MAX];
            uint64_t offset = read64(at);
            uint32_t bytes_max = read32(at + 8);
            put16(0);
            put64(log->end);
            size_t size_at = out->size;
            put32(0);
            for (uint64_t set = log->count > SETS_KEPT ? log->count - SETS_KEPT : 0; set < log->count; set++) {
                message_set *kept = &log->sets[set % SETS_KEPT];
                if (kept->last < offset) continue;
                size_t there = out->size - size_at - 4;
                if (there && there + kept->size > bytes_max) break;
                put(kept->data, kept->size);
            }
            store32(out->data + size_at, (uint32_t)(out->size - size_at - 4));
            at += 8 + 4;
        }
    }
}
static void list_offsets(const uint8_t *at, int version) {
    at += 4;  // replica
    for (uint32_t topics = pass32(&at); topics; topics--) {
        pass_name(&at);
        for (uint32_t left = pass32(&at); left; left--) {
            partition *log = &partitions[pass32(&at) % PARTITIONS_MAX];
            put16(0);
            if (version >= 1) put64((uint64_t)-1); else put32(1);
            put64(log->end);
            at += version >= 1 ? 8 : 12;
        }
    }
}
static void metadata(const uint8_t *at, int version) {
    put32(1); put32(0); put16(9); put("127.0.0.1", 9); put32((uint32_t)port);
    if (version >= 1) put16(0xffff);  // rack
    if (version >= 2) put16(0xffff);  // cluster id
    if (version >= 1) put32(0);       // controller
    int32_t topics = (int32_t)read32(at);
    at += 4;
    static const uint8_t own[] = "\0\5bench";
    if (topics <= 0) { topics = 1; at = own; }
    for (put32((uint32_t)topics); topics; topics--) {
        put16(0);
        pass_name(&at);
        if (version >= 1) put8(0);
        put32((uint32_t)partition_count);
        for (int number = 0; number < partition_count; number++) {
            put16(0); put32((uint32_t)number); put32(0); put32(1); put32(0); put32(1); put32(0);
        }
    }
}
static void api_versions(void) {
    static const uint16_t highest[] = {2, 3, 1, 2, 0, 0, 3, 1, 2, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1};
    uint16_t count = sizeof highest / sizeof *highest;
    put16(0); put32(count);
    for (uint16_t key = 0; key < count; key++) { put16(key); put16(key == 7); put16(highest[key]); }
}
static int answer(const uint8_t *frame) {
    uint16_t key = read16(frame), version = read16(frame + 2), name = read16(frame + 8);
    const uint8_t *body = frame + 10 + (name == 0xffff ? 0 : name);
    size_t start = out->size;
    put32(0);
    put(frame + 4, 4);
    switch (key) {
    case PRODUCE: produce(body, version); break;
    case FETCH: fetch(body, version); break;
    case LIST_OFFSETS: list_offsets(body, version); break;
    case METADATA: metadata(body, version); break;
    case API_VERSIONS: api_versions(); break;
    default: fprintf(stderr, "sink: API %d\n", key); return 0;
    }
    if (key == PRODUCE && read16(body) == 0) out->size = start;  // acks 0
    else store32(out->data + start, (uint32_t)(out->size - start - 4));
    return 1;
}
static void want(connection *peer, int is_waiting) {
    if (peer->is_waiting == is_waiting) return;
    struct epoll_event event = {.events = is_waiting ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = peer};
    epoll_ctl(epoll, EPOLL_CTL_MOD, peer->descriptor, &event);
    peer->is_waiting = is_waiting;
}
static int send_out(connection *peer) {
    while (peer->sent < peer->out.size) {
        ssize_t sent = send(peer->descriptor, peer->out.data + peer->sent, peer->out.size - peer->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) return 0;
        if (sent < 0) { want(peer, 1); return 1; }
        peer->sent += (size_t)sent;
    }
    peer->sent = peer->out.size = 0;
    want(peer, 0);
    return 1;
}
static int receive(connection *peer) {
    bytes *in = &peer->in;
    reserve(in, RECEIVE_BYTES);
    ssize_t received = recv(peer->descriptor, in->data + in->size, in->room - in->size, 0);
    if (received <= 0) return received < 0 && errno == EAGAIN;
    in->size += (size_t)received;
    size_t at = 0;
    out = &peer->out;
    while (in->size - at >= 4 && in->size - at - 4 >= read32(in->data + at)) {
        if (!answer(in->data + at + 4)) return 0;
        at += 4 + read32(in->data + at);
    }
    if (at) memmove(in->data, in->data + at, in->size -= at);
    return 1;
}
static void accept_one(int listener) {
    int descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK), one = 1;
    if (descriptor < 0) return;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connection *peer = calloc(1, sizeof *peer);
    if (!peer) abort();
    peer->descriptor = descriptor;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}
int main(int count, char **arguments) {
    if (count != 3) return 2;
    port = atoi(arguments[1]);
    partition_count = atoi(arguments[2]);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) { perror("sink"); return 1; }
    epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS_MAX];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    puts("READY");
    fflush(stdout);
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < ready; i++) {
            connection *peer = events[i].data.ptr;
            if (!peer) { accept_one(listener); continue; }
            int is_open = !(events[i].events & ~(uint32_t)EPOLLOUT) || receive(peer);
            if (is_open && send_out(peer)) continue;
            close(peer->descriptor);
            free(peer->in.data); free(peer->out.data); free(peer);
        }
    }
}
