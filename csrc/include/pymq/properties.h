/* The properties string: name 0x01 value 0x02 name 0x01 value 0x02 …
 *
 * Read as Apache's decoder reads it: a pair without a separator is skipped, an empty name or value is kept out or
 * in exactly as there, the last of two equal names wins, the final 0x02 may be missing.
 */
#ifndef PYMQ_PROPERTIES_H
#define PYMQ_PROPERTIES_H

#include "pymq/base.h"

#define PYMQ_NAME_VALUE_SEPARATOR 0x01
#define PYMQ_PROPERTY_SEPARATOR 0x02

struct pymq_slice {
    const uint8_t *data; /* NULL when absent */
    uint32_t size;
};

struct pymq_property {
    struct pymq_slice name;
    struct pymq_slice value;
};

/* Step through properties. `*position` starts at 0. Returns 1 and fills `property`, or 0 at the end. */
int pymq_properties_next(const uint8_t *source, size_t size, size_t *position, struct pymq_property *property);

/* The value of `name`, the last one if repeated; data is NULL when absent. */
struct pymq_slice pymq_properties_find(const uint8_t *source, size_t size, const char *name, size_t name_size);

/* Whether a writer can have left this behind: empty, or with at least one name/value separator. Deliberately no
 * stricter, since users may put any byte into names and values; properties.c has the reasoning. */
bool pymq_properties_are_well_formed(const uint8_t *source, size_t size);

/* Append `name=value` to `target` at `*size`. PYMQ_OK, PYMQ_EPROPERTIES when it does not fit in `capacity`,
 * PYMQ_EINVAL when name or value holds a separator byte. */
int pymq_properties_append(uint8_t *target, size_t capacity, size_t *size, struct pymq_slice name,
                           struct pymq_slice value);

#endif
