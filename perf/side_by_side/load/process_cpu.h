/* CPU time of this process and of one that is watched: user and system, all threads, those that ended included. */
#ifndef PYMQ_LOAD_PROCESS_CPU_H
#define PYMQ_LOAD_PROCESS_CPU_H

#include <sys/types.h>

struct cpu_time {
    double user_s;
    double system_s;
};

/* From /proc/<pid>/stat; fails with EXIT_MACHINE when there is no such process. */
struct cpu_time cpu_time_of(pid_t pid);
struct cpu_time cpu_time_own(void);

static inline struct cpu_time cpu_time_plus(struct cpu_time left, struct cpu_time right) {
    return (struct cpu_time){left.user_s + right.user_s, left.system_s + right.system_s};
}

static inline struct cpu_time cpu_time_between(struct cpu_time begin, struct cpu_time end) {
    return (struct cpu_time){end.user_s - begin.user_s, end.system_s - begin.system_s};
}

#endif
