/* Growing texts with placeholders, and termination of the program on fatal errors. */
#ifndef TEXT_H
#define TEXT_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { char *bytes; int length; } Text;

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(2);
}

static void *grow(void *memory, size_t bytes) {
    memory = realloc(memory, bytes);
    if (!memory) fail("out of memory");
    return memory;
}

/* Appends formatted text; the terminating zero is not part of it. */
static void text_add(Text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    t->bytes = grow(t->bytes, t->length + n + 1);
    va_start(arguments, format);
    vsnprintf(t->bytes + t->length, n + 1, format, arguments);
    va_end(arguments);
    t->length += n;
}

/* Appends `width` zeros and returns their position. */
static int text_hole(Text *t, int width) {
    text_add(t, "%0*d", width, 0);
    return t->length - width;
}

#endif
