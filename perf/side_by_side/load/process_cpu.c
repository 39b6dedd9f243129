/* See process_cpu.h. */
#include "process_cpu.h"

#include "fail.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct cpu_time cpu_time_of(pid_t pid) {
    char path[64], line[1024];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(line, sizeof line, file) == NULL)
        fail(EXIT_MACHINE, "the watched process %d is gone", (int)pid);
    fclose(file);
    /* The name in parentheses may hold anything; fields 14 and 15 are counted from behind it, where field 3 begins. */
    const char *rest = strrchr(line, ')');
    if (rest == NULL || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        fail(EXIT_MACHINE, "%s does not read as expected", path);
    double ticks = (double)sysconf(_SC_CLK_TCK);
    return (struct cpu_time){(double)user / ticks, (double)system / ticks};
}

struct cpu_time cpu_time_own(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (struct cpu_time){(double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6,
                             (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6};
}
