/* Filter programs: what the verifier refuses, what the evaluator says, and what both cost. The meaning of expressions
 * is held to Apache's by tests/filter. */
#include <time.h>

#include "check.h"
#include "filter_help.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ROUNDS 1000
#else
#define ROUNDS 400000
#endif

static int verify(const struct written *source) {
    struct pymq_filter_program program;
    uint8_t *exact = malloc(source->size); /* so that a sanitizer sees a step too far */
    memcpy(exact, source->bytes, source->size);
    int status = pymq_filter_verify(exact, source->size, &program);
    free(exact);
    return status;
}

static int verify_code(const char *code, size_t size) {
    struct written target = program_of("a");
    write_bytes(&target, code, size);
    return verify(&target);
}

#define CODE(text) verify_code(text, sizeof text - 1)
/* The code begins at 6: magic, version, count, and one name of one byte. */

static void test_whole_programs_are_taken(void) {
    CHECK_EQ(CODE("\x02\x50"), PYMQ_OK);
    CHECK_EQ(CODE("\x08\x00\x12\x50"), PYMQ_OK);
    CHECK_EQ(CODE("\x01\x41\x00\x0b\x02\x40\x50"), PYMQ_ECORRUPT); /* into the middle */
    CHECK_EQ(CODE("\x01\x41\x00\x0c\x02\x40\x50"), PYMQ_OK);       /* NULL AND TRUE */
    CHECK_EQ(CODE("\x02\x45\x00\x0c\x03\x50\x02\x50"), PYMQ_OK);
}

static void test_anything_else_is_refused(void) {
    CHECK_EQ(CODE(""), PYMQ_ECORRUPT);
    CHECK_EQ(CODE("\x02"), PYMQ_ECORRUPT);                          /* no RETURN */
    CHECK_EQ(CODE("\x50"), PYMQ_ECORRUPT);                          /* nothing to return */
    CHECK_EQ(CODE("\x02\x20\x50"), PYMQ_ECORRUPT);                  /* one operand of two */
    CHECK_EQ(CODE("\x08\x01\x50"), PYMQ_ECORRUPT);                  /* no such property */
    CHECK_EQ(CODE("\x04\x00\x00\x00"), PYMQ_ECORRUPT);              /* cut */
    CHECK_EQ(CODE("\x07\x00\x05x\x50"), PYMQ_ECORRUPT);             /* a string beyond the end */
    CHECK_EQ(CODE("\x01\x38\xff\xff\x50"), PYMQ_ECORRUPT);          /* a list beyond the end */
    CHECK_EQ(CODE("\x06\x7f\xf8\x00\x00\x00\x00\x00\x00\x50"), PYMQ_ECORRUPT); /* a NaN */
    CHECK_EQ(CODE("\x02\x50\x02\x50"), PYMQ_ECORRUPT);              /* code nobody reaches */
    CHECK_EQ(CODE("\x01\x41\x00\x06\x50"), PYMQ_ECORRUPT);          /* backwards */
    CHECK_EQ(CODE("\x01\x41\x00\x40\x50"), PYMQ_ECORRUPT);          /* beyond the end */
    CHECK_EQ(CODE("\x01\x41\x00\x0b\x02\x50"), PYMQ_ECORRUPT);      /* depths that disagree */
    CHECK_EQ(CODE("\xff\x50"), PYMQ_ECORRUPT);
    struct written bad = program_of("a");
    write_bytes(&bad, "\x02\x50", 2);
    for (size_t at = 0; at < 3; at++) {
        struct written spoiled = bad;
        spoiled.bytes[at] ^= 0x40;
        CHECK_EQ(verify(&spoiled), PYMQ_ECORRUPT);
    }
    bad.bytes[3] = PYMQ_FILTER_PROPERTIES_MAX + 1;
    CHECK_EQ(verify(&bad), PYMQ_ECORRUPT);
    bad.bytes[3] = 1;
    bad.bytes[4] = 0; /* a name of nothing */
    CHECK_EQ(verify(&bad), PYMQ_ECORRUPT);
}

static void test_the_stack_has_an_end(void) {
    static uint8_t bytes[PYMQ_FILTER_SIZE_MAX + 1];
    struct pymq_filter_program program;
    for (size_t depth = PYMQ_FILTER_STACK_MAX - 1; depth <= PYMQ_FILTER_STACK_MAX + 1; depth++) {
        memcpy(bytes, "SQ\001\000", 4);
        memset(bytes + 4, 0x02, depth);
        memset(bytes + 4 + depth, 0x40, depth - 1);
        bytes[4 + 2 * depth - 1] = 0x50;
        int status = pymq_filter_verify(bytes, 4 + 2 * depth, &program);
        CHECK_EQ(status, depth <= PYMQ_FILTER_STACK_MAX ? PYMQ_OK : PYMQ_ECORRUPT);
        if (status == PYMQ_OK)
            CHECK_EQ(pymq_filter_evaluate(&program, (const uint8_t *)"", 0), PYMQ_FILTER_TRUE);
    }
    CHECK_EQ(pymq_filter_verify(bytes, sizeof bytes, &program), PYMQ_ETOOBIG);
}

static enum pymq_filter_verdict says(const struct written *source, const char *properties) {
    struct pymq_filter_program program;
    CHECK_EQ(pymq_filter_verify(source->bytes, source->size, &program), PYMQ_OK);
    return pymq_filter_evaluate(&program, (const uint8_t *)properties, strlen(properties));
}

static void test_a_property_is_compared_as_what_it_is_compared_with(void) {
    struct written equal = program_equal("colour", "red"), greater = program_greater("price", 5);
    CHECK_EQ(says(&equal, "colour\001red\002"), PYMQ_FILTER_TRUE);
    CHECK_EQ(says(&equal, "colour\001green\002colour\001red"), PYMQ_FILTER_TRUE); /* the last one counts */
    CHECK_EQ(says(&equal, "colour\001red\002colour\001green\002"), PYMQ_FILTER_FALSE);
    CHECK_EQ(says(&equal, "colours\001red\002"), PYMQ_FILTER_NULL);
    CHECK_EQ(says(&equal, ""), PYMQ_FILTER_NULL);
    CHECK_EQ(says(&greater, "price\0016\002"), PYMQ_FILTER_TRUE);
    CHECK_EQ(says(&greater, "price\0015\002"), PYMQ_FILTER_FALSE);
    CHECK_EQ(says(&greater, "price\0015.5\002"), PYMQ_FILTER_ERROR); /* Integer.valueOf throws */
    CHECK_EQ(says(&greater, "price\001much\002"), PYMQ_FILTER_ERROR);
    CHECK_EQ(says(&greater, "price\001\002"), PYMQ_FILTER_NULL); /* Apache's decoder has no empty values */
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void measure(const char *what, const struct written *source, const char *properties) {
    struct pymq_filter_program program;
    CHECK_EQ(pymq_filter_verify(source->bytes, source->size, &program), PYMQ_OK);
    size_t size = strlen(properties);
    unsigned matched = 0;
    int64_t begin_ns = now_ns();
    for (int i = 0; i < ROUNDS; i++)
        matched += pymq_filter_evaluate(&program, (const uint8_t *)properties, size) == PYMQ_FILTER_TRUE;
    CHECK_EQ(matched, ROUNDS);
    printf("%s: %.0f ns a record\n", what, (double)(now_ns() - begin_ns) / ROUNDS);
}

static void test_what_it_costs(void) {
    struct written equal = program_equal("colour", "red"), greater = program_greater("price", 5);
    static const char PROPERTIES[] = "MIN_OFFSET\0010\002colour\001red\002price\00117\002"
                                     "UNIQ_KEY\001AC11000100002A9F0000000000000001\002MSG_REGION\001DefaultRegion\002"
                                     "TRACE_ON\001true\002CLUSTER\001DefaultCluster\002TAGS\001t\002";
    measure("colour = 'red', 8 properties", &equal, PROPERTIES);
    measure("price > 5, 8 properties", &greater, PROPERTIES);
}

int main(void) {
    RUN(test_whole_programs_are_taken);
    RUN(test_anything_else_is_refused);
    RUN(test_the_stack_has_an_end);
    RUN(test_a_property_is_compared_as_what_it_is_compared_with);
    RUN(test_what_it_costs);
    return check_summary();
}
