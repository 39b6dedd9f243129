/* Text as the wire has it: UTF-8, decimal digits, names of languages. */
#include "wire_internal.h"

const char pymq_digit_pairs[201] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
    "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

const struct pymq_language_name pymq_language_names[PYMQ_LANGUAGES] = {
    {4, "JAVA"}, {3, "CPP"},  {6, "DOTNET"}, {6, "PYTHON"}, {6, "DELPHI"}, {6, "ERLANG"}, {4, "RUBY"},
    {5, "OTHER"}, {4, "HTTP"}, {2, "GO"},     {3, "PHP"},    {3, "OMS"},    {4, "RUST"},   {7, "NODE_JS"},
};

static bool is_continuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

size_t pymq_utf8_step(const uint8_t *source, const uint8_t *end) {
    size_t left = (size_t)(end - source);
    if (left == 0) {
        return 0;
    }
    uint8_t first = source[0];
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xc2 || first > 0xf4) {
        return 0; /* a continuation, an overlong form of ASCII, or beyond U+10FFFF */
    }
    if (left < 2 || !is_continuation(source[1])) {
        return 0;
    }
    if (first < 0xe0) {
        return 2;
    }
    if (left < 3 || !is_continuation(source[2])) {
        return 0;
    }
    if (first < 0xf0) {
        bool overlong = first == 0xe0 && source[1] < 0xa0;
        bool surrogate = first == 0xed && source[1] >= 0xa0;
        return overlong || surrogate ? 0 : 3;
    }
    if (left < 4 || !is_continuation(source[3])) {
        return 0;
    }
    bool overlong = first == 0xf0 && source[1] < 0x90;
    bool beyond = first == 0xf4 && source[1] >= 0x90;
    return overlong || beyond ? 0 : 4;
}

bool pymq_utf8_is_valid(const uint8_t *source, size_t size) {
    const uint8_t *end = source + size;
    if (pymq_is_ascii(source, size)) {
        return true;
    }
    while (source < end) {
        size_t step = pymq_utf8_step(source, end);
        if (step == 0) {
            return false;
        }
        source += step;
    }
    return true;
}
