/* Instructions of a filter program; pymq/filter_program.h says what each does. */
#ifndef PYMQ_CODEC_FILTER_OPS_H
#define PYMQ_CODEC_FILTER_OPS_H

enum filter_op {
    OP_NULL = 0x01,
    OP_TRUE = 0x02,
    OP_FALSE = 0x03,
    OP_INTEGER = 0x04,
    OP_LONG = 0x05,
    OP_DOUBLE = 0x06,
    OP_STRING = 0x07,
    OP_PROPERTY = 0x08,
    OP_NEGATE = 0x10,
    OP_NOT = 0x11,
    OP_CAST = 0x12,
    OP_EQUAL = 0x20,
    OP_GREATER = 0x21,
    OP_GREATER_EQUAL = 0x22,
    OP_LESS = 0x23,
    OP_LESS_EQUAL = 0x24,
    OP_CONTAINS = 0x30,
    OP_NOT_CONTAINS = 0x31,
    OP_STARTSWITH = 0x32,
    OP_NOT_STARTSWITH = 0x33,
    OP_ENDSWITH = 0x34,
    OP_NOT_ENDSWITH = 0x35,
    OP_IN = 0x38,
    OP_NOT_IN = 0x39,
    OP_AND = 0x40,
    OP_AND_JUMP = 0x41,
    OP_OR = 0x42,
    OP_OR_JUMP = 0x43,
    OP_NULL_JUMP = 0x44,
    OP_UNLESS_JUMP = 0x45,
    OP_RETURN = 0x50,
};

#define FILTER_NEGATED 1 /* bit of the operations that have a NOT form */

#endif
