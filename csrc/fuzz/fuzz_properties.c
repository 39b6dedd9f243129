/* libFuzzer: any bytes as a properties string and as text to hash.
 *
 * Pairs found must lie inside the input, and writing them again must read back as the same pairs.
 */
#include "pymq/java_hash.h"
#include "pymq/properties.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pymq_property property, again;
    size_t position = 0, written = 0, read = 0;
    uint8_t *target = malloc(size + 1); /* a missing final separator is added */
    require(target != NULL);
    while (pymq_properties_next(data, size, &position, &property)) {
        struct pymq_slice found;
        int status;
        require(property.name.data >= data && property.value.data + property.value.size <= data + size);
        require(property.name.size > 0 && property.value.size > 0);
        require(pymq_properties_are_well_formed(data, size));
        found = pymq_properties_find(data, size, (const char *)property.name.data, property.name.size);
        require(found.data >= property.value.data); /* the last of its name: this one or a later one */
        status = pymq_properties_append(target, size + 1, &written, property.name, property.value);
        if (status == PYMQ_EINVAL) { /* a value may hold 0x01 when read, but not when written by us */
            require(memchr(property.value.data, PYMQ_NAME_VALUE_SEPARATOR, property.value.size) != NULL);
            continue;
        }
        require(status == PYMQ_OK);
        require(pymq_properties_next(target, written, &read, &again) == 1);
        require(again.value.size == property.value.size &&
                memcmp(again.value.data, property.value.data, again.value.size) == 0);
    }
    require(pymq_properties_next(target, written, &read, &again) == 0);
    free(target);
    require(pymq_index_key_hash(data, size / 2, data + size / 2, size - size / 2) >= 0);
    (void)pymq_java_hash(0, data, size);
    return 0;
}
