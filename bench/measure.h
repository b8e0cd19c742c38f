/* Clocks, CPU time of processes, and big-endian numbers. */
#ifndef MEASURE_H
#define MEASURE_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "text.h"

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static void put_u32(char *at, uint32_t value) {
    value = htonl(value);
    memcpy(at, &value, 4);
}

static uint32_t get_u32(const char *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return ntohl(value);
}

static int64_t get_i64(const char *at) { return (int64_t)((uint64_t)get_u32(at) << 32 | get_u32(at + 4)); }

static void put_digits(char *at, uint64_t value, int digits) {
    while (digits--) {
        at[digits] = '0' + value % 10;
        value /= 10;
    }
}

/* Returns user and system time of all threads of the given processes, including ended threads. */
static double cpu_seconds(const int *pids, int count) {
    double total = 0;
    for (int i = 0; i < count; i++) {
        char path[64], text[1024];
        unsigned long user, system;
        snprintf(path, sizeof path, "/proc/%d/stat", pids[i]);
        int file = open(path, O_RDONLY);
        if (file < 0) fail("process %d is gone (cannot open %s)", pids[i], path);
        ssize_t n = read(file, text, sizeof text - 1);
        close(file);
        text[n < 0 ? 0 : n] = 0;
        char *after_name = strrchr(text, ')');
        if (!after_name || sscanf(after_name + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
            fail("cannot read the CPU time in %s", path);
        total += (user + system) / (double)sysconf(_SC_CLK_TCK);
    }
    return total;
}

static double own_cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

#endif
