/* See fail.h. */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void fail(enum exit_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit((int)status);
}
