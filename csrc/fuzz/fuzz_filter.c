/* libFuzzer: any bytes as a filter program, as properties, and as a number.
 *
 * Whatever the verifier lets through must end with a verdict without leaving its bytes. The first byte says how many of
 * the rest are the program; the magic and version are put in front of it, which the fuzzer need not guess.
 */
#include "pymq/filter_program.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint8_t HEAD[] = {'S', 'Q', PYMQ_FILTER_VERSION};
    struct pymq_filter_program program;
    int32_t small;
    int64_t large;
    double real;
    if (size == 0)
        return 0;
    size_t code_size = data[0] < size - 1 ? data[0] : size - 1, properties_size = size - 1 - code_size;
    uint8_t *code = malloc(sizeof HEAD + code_size), *properties = malloc(properties_size + 1);
    require(code != NULL && properties != NULL);
    memcpy(code, HEAD, sizeof HEAD);
    memcpy(code + sizeof HEAD, data + 1, code_size);
    memcpy(properties, data + 1 + code_size, properties_size);
    if (pymq_filter_verify(code, sizeof HEAD + code_size, &program) == PYMQ_OK) {
        enum pymq_filter_verdict verdict = pymq_filter_evaluate(&program, properties, properties_size);
        require(verdict >= PYMQ_FILTER_FALSE && verdict <= PYMQ_FILTER_OTHER);
        require(pymq_filter_evaluate(&program, properties, properties_size) == verdict);
    }
    if (pymq_java_int32(properties, properties_size, &small))
        require(pymq_java_int64(properties, properties_size, &large) && large == small);
    (void)pymq_java_double(properties, properties_size, &real);
    free(code);
    free(properties);
    return 0;
}
