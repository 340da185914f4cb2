// Keeps so many requests in flight on every connection, and measures how long answers take. Knows of Kafka only where in
// the frames what stands: loadgen.py has opened the connections, made the frames, and tells all by one file.
//
//   closed_loop DESCRIPTOR-OF-THE-PLAN
//
// A batch is not signed anew for its next sequence: CRC-32C is linear, so each bit of the sequence that is set changes
// the checksum by a constant. Prints START after the warm-up and END with JSON at the end.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS_MAX = 256, RECEIVE_BYTES = 1 << 18, PATIENCE_SECONDS = 10, CORRELATION_ID_AT = 8, CRC_AT = 17, SEQUENCE_AT = 53 };

typedef struct { uint32_t connections, in_flight, error_at, padding; double warm_up_seconds, seconds; } plan;
typedef struct { int32_t descriptor; uint32_t records, batch_at, crc, of_bits[32], size; } stream;  // its frame follows
typedef struct {
    stream *stream;
    uint8_t *frame, *in;
    size_t sent, received, room;
    uint32_t correlation_id, sequence, in_flight, is_sending, is_waiting;
    uint64_t *sent_at;  // a ring of in_flight
    uint32_t first, last;
} connection;

static plan *all;
static int epoll, is_measuring;
static uint64_t requests, bytes_in, errors;
static int16_t first_error;
static uint32_t *latencies;  // in units of 0.1 us
static size_t latencies_room;

static void fail(const char *what) { fprintf(stderr, "closed_loop: %s: %s\n", what, strerror(errno)); exit(1); }
static double seconds_of(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }
static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
}
static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
static uint32_t read32(const uint8_t *at) { uint32_t value; memcpy(&value, at, 4); return ntohl(value); }
static void store32(uint8_t *at, uint32_t value) { value = htonl(value); memcpy(at, &value, 4); }

static void next_batch(connection *peer) {
    store32(peer->frame + CORRELATION_ID_AT, ++peer->correlation_id);
    if (!peer->stream->batch_at) return;
    uint8_t *batch = peer->frame + peer->stream->batch_at;
    uint32_t crc = peer->stream->crc;
    for (uint32_t bit = 0; bit < 32; bit++) if (peer->sequence >> bit & 1) crc ^= peer->stream->of_bits[bit];
    store32(batch + SEQUENCE_AT, peer->sequence);
    store32(batch + CRC_AT, crc);
    peer->sequence = (peer->sequence + peer->stream->records) & 0x7fffffff;
}
static void want(connection *peer, uint32_t is_waiting) {
    if (peer->is_waiting == is_waiting) return;
    struct epoll_event event = {.events = is_waiting ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = peer};
    epoll_ctl(epoll, EPOLL_CTL_MOD, peer->stream->descriptor, &event);
    peer->is_waiting = is_waiting;
}
static void send_more(connection *peer) {
    for (;;) {
        if (!peer->is_sending) {
            if (peer->in_flight == all->in_flight) break;
            next_batch(peer);
            peer->in_flight++;
            peer->is_sending = 1;
            peer->sent = 0;
            peer->sent_at[peer->last++ % all->in_flight] = now();
        }
        ssize_t sent = send(peer->stream->descriptor, peer->frame + peer->sent, peer->stream->size - peer->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) { want(peer, 1); return; }
        if (sent < 0) fail("send");
        peer->sent += (size_t)sent;
        peer->is_sending = peer->sent < peer->stream->size;
    }
    want(peer, 0);
}
static void take_answer(connection *peer, const uint8_t *frame, uint32_t size) {
    uint64_t took = (now() - peer->sent_at[peer->first++ % all->in_flight]) / 100;
    int16_t error = (int16_t)(frame[all->error_at] << 8 | frame[all->error_at + 1]);
    peer->in_flight--;
    if (error && !errors++) first_error = error;
    if (!is_measuring) return;
    if (requests == latencies_room) {
        latencies_room = latencies_room ? 2 * latencies_room : 1 << 16;
        latencies = realloc(latencies, latencies_room * sizeof *latencies);
        if (!latencies) abort();
    }
    latencies[requests++] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
    bytes_in += size;
}
static void receive(connection *peer) {
    if (peer->room - peer->received < RECEIVE_BYTES) {
        peer->room = 2 * peer->room + RECEIVE_BYTES;
        peer->in = realloc(peer->in, peer->room);
        if (!peer->in) abort();
    }
    ssize_t received = recv(peer->stream->descriptor, peer->in + peer->received, peer->room - peer->received, 0);
    if (received < 0 && errno == EAGAIN) return;
    if (received <= 0) fail("the connection was closed");
    peer->received += (size_t)received;
    size_t at = 0;
    while (peer->received - at >= 4 && peer->received - at - 4 >= read32(peer->in + at)) {
        take_answer(peer, peer->in + at, 4 + read32(peer->in + at));
        at += 4 + read32(peer->in + at);
    }
    if (at) memmove(peer->in, peer->in + at, peer->received -= at);
}
static int compare(const void *one, const void *other) {
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}
static double percentile_ms(double share) {
    size_t at = (size_t)((double)requests * share);
    return requests ? latencies[at < requests ? at : requests - 1] / 1e4 : 0;
}
int main(int count, char **arguments) {
    struct stat status;
    int file = count == 2 ? atoi(arguments[1]) : -1;
    if (fstat(file, &status)) fail("the plan");
    uint8_t *data = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED) fail("the plan");
    all = (plan *)data;
    data += sizeof *all;
    connection *connections = calloc(all->connections, sizeof *connections);
    if (!connections) abort();
    epoll = epoll_create1(0);
    for (connection *peer = connections; peer < connections + all->connections; peer++) {
        peer->stream = (stream *)data;
        peer->frame = data + sizeof *peer->stream;
        data = peer->frame + (peer->stream->size + 7) / 8 * 8;
        peer->sent_at = calloc(all->in_flight, sizeof *peer->sent_at);
        if (!peer->sent_at) abort();
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
        epoll_ctl(epoll, EPOLL_CTL_ADD, peer->stream->descriptor, &event);
        send_more(peer);
    }
    uint64_t begin = now() + (uint64_t)(all->warm_up_seconds * 1e9), time;
    double cpu = 0;
    struct epoll_event events[EVENTS_MAX];
    uint64_t late = PATIENCE_SECONDS * 1000000000ull;  // for the first answer, on a machine that has other things to do
    while ((time = now()) < begin + (uint64_t)(all->seconds * 1e9) + (requests ? 0 : late)) {
        if (!is_measuring && time >= begin) {
            is_measuring = 1;
            begin = time;
            cpu = cpu_seconds();
            puts("START");
            fflush(stdout);
        }
        int ready = epoll_wait(epoll, events, EVENTS_MAX, 10);
        for (int i = 0; i < ready; i++) {
            connection *peer = events[i].data.ptr;
            if (events[i].events & ~(uint32_t)EPOLLOUT) receive(peer);
            send_more(peer);
        }
    }
    qsort(latencies, requests, sizeof *latencies, compare);
    printf("END {\"requests\": %llu, \"seconds\": %.6f, \"bytes_in\": %llu, \"cpu_seconds\": %.6f, \"p50_ms\": %.4f, \"p99_ms\": %.4f, "
           "\"errors\": %llu, \"first_error\": %d}\n",
           (unsigned long long)requests, (double)(time - begin) / 1e9, (unsigned long long)bytes_in, cpu_seconds() - cpu,
           percentile_ms(0.5), percentile_ms(0.99), (unsigned long long)errors, first_error);
    return 0;
}
