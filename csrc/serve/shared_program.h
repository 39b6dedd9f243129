/* A verified filter program with a count of who uses it: a subscription's row, the holds that outlive the row, and
 * reads on their way through another thread. Made once when it is published; its bytes never change. */
#ifndef PYMQ_SERVE_SHARED_PROGRAM_H
#define PYMQ_SERVE_SHARED_PROGRAM_H

#include <stdatomic.h>

#include "pymq/filter_program.h"
#include "pymq/serve.h"

struct pymq_shared_program {
    _Atomic uint32_t users;
    struct pymq_filter_program program;
    uint8_t bytes[];
};

/* pymq/serve.h has pymq_shared_program_make, which begins with one user, and _leave, whose last one frees it. */

/* One user more; NULL stays NULL. */
struct pymq_shared_program *pymq_shared_program_use(struct pymq_shared_program *shared);

#endif
