/* Status names and the one place where an error's text is formatted. */
#include "pymq/base.h"

#include <stdarg.h>
#include <stdio.h>

int pymq_fail(struct pymq_error *error, int status, int sys_errno, const char *format, ...) {
    if (error != NULL) {
        va_list arguments;
        error->status = status;
        error->sys_errno = sys_errno;
        va_start(arguments, format);
        /* A text longer than the field is cut: the beginning names the thing. */
        if (vsnprintf(error->text, sizeof error->text, format, arguments) < 0) {
            error->text[0] = '\0';
        }
        va_end(arguments);
    }
    return status;
}

const char *pymq_status_name(int status) {
    switch ((enum pymq_status)status) {
    case PYMQ_OK: return "PYMQ_OK";
    case PYMQ_ECORRUPT: return "PYMQ_ECORRUPT";
    case PYMQ_ETRUNCATED: return "PYMQ_ETRUNCATED";
    case PYMQ_EINVAL: return "PYMQ_EINVAL";
    case PYMQ_ENOMEM: return "PYMQ_ENOMEM";
    case PYMQ_EIO: return "PYMQ_EIO";
    case PYMQ_ENOSPC: return "PYMQ_ENOSPC";
    case PYMQ_ETOOBIG: return "PYMQ_ETOOBIG";
    case PYMQ_EPROPERTIES: return "PYMQ_EPROPERTIES";
    case PYMQ_ETOPIC: return "PYMQ_ETOPIC";
    case PYMQ_EFAILED: return "PYMQ_EFAILED";
    case PYMQ_ECLOSED: return "PYMQ_ECLOSED";
    case PYMQ_ETIMEDOUT: return "PYMQ_ETIMEDOUT";
    case PYMQ_EPOOL: return "PYMQ_EPOOL";
    case PYMQ_ELOCKED: return "PYMQ_ELOCKED";
    case PYMQ_EMISMATCH: return "PYMQ_EMISMATCH";
    case PYMQ_EUNSUPPORTED: return "PYMQ_EUNSUPPORTED";
    case PYMQ_ENOTFOUND: return "PYMQ_ENOTFOUND";
    case PYMQ_EREADONLY: return "PYMQ_EREADONLY";
    case PYMQ_EMAPS: return "PYMQ_EMAPS";
    case PYMQ_EREMOVED: return "PYMQ_EREMOVED";
    }
    return "PYMQ_EUNKNOWN";
}
