/* libFuzzer: any bytes as a stream, cut as a reactor cuts it. Every frame cut lies inside the bytes, the cutting makes
 * progress, and what was decided on the first four bytes is not changed by later ones. */
#include "pymq/command.h"

#include <stdlib.h>

#define SIZE_MAX_HERE 4099 /* small, so that the bound is met */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pymq_command *command = malloc(sizeof *command);
    uint8_t *scratch = malloc(SIZE_MAX_HERE + 4);
    size_t at = 0;
    require(command != NULL && scratch != NULL);
    while (at < size) {
        ssize_t frame_size = pymq_frame_size(data + at, size - at, SIZE_MAX_HERE);
        if (frame_size <= 0) {
            require((frame_size == 0) == (size - at < 4));
            require(frame_size == 0 || frame_size == PYMQ_ETOOBIG || frame_size == PYMQ_ECORRUPT);
            break;
        }
        require(frame_size >= PYMQ_FRAME_PREFIX_SIZE && frame_size <= SIZE_MAX_HERE + 4);
        require(pymq_frame_size(data + at, 4, SIZE_MAX_HERE) == frame_size);
        if ((size_t)frame_size > size - at) {
            break; /* the rest has not arrived */
        }
        int status = pymq_command_decode(data + at, (size_t)frame_size, scratch, SIZE_MAX_HERE + 4, command);
        require(status == PYMQ_OK || status == PYMQ_EUNSUPPORTED || status == PYMQ_ECORRUPT);
        if (status == PYMQ_ECORRUPT) {
            break;
        }
        at += (size_t)frame_size;
    }
    free(scratch);
    free(command);
    return 0;
}
