/* How the program ends when it cannot go on: one sentence on stderr, one status that says of which kind.
 *
 * What was registered with atexit (the ledger) is still written. */
#ifndef PYMQ_LOAD_FAIL_H
#define PYMQ_LOAD_FAIL_H

enum exit_status {
    EXIT_USAGE = 2,
    EXIT_TIME_OUT = 3, /* --timeout-s passed before the run was over */
    EXIT_PEER = 4,     /* the broker refused a set-up request, closed a connection or sent what is not a frame */
    EXIT_MACHINE = 5,  /* memory, files, sockets */
};

__attribute__((noreturn, format(printf, 2, 3))) void fail(enum exit_status status, const char *format, ...);

#endif
