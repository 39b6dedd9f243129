/* Numbers in text as Java's valueOf methods read them: what a property compared with a number is put through.
 *
 * Compat: Integer and Long take every decimal digit of Unicode's basic plane (Character.digit), no space and no point;
 * Double takes ASCII only, with spaces and controls around it, a type suffix, hexadecimal, NaN and Infinity.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "pymq/filter_program.h"

/* ---- Integer and Long ----------------------------------------------------------------------------------------- */

/* Zeros of the decimal digits above ASCII; each is followed by its one to nine. */
static const uint16_t ZEROS[] = {
    0x0660, 0x06f0, 0x07c0, 0x0966, 0x09e6, 0x0a66, 0x0ae6, 0x0b66, 0x0be6, 0x0c66, 0x0ce6, 0x0d66,
    0x0de6, 0x0e50, 0x0ed0, 0x0f20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90,
    0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10,
};

#define LEAD_2 0xc0 /* of a UTF-8 sequence of two bytes, under MASK_2 */
#define MASK_2 0xe0
#define LEAD_3 0xe0
#define MASK_3 0xf0

static bool is_continuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

/* The digit at `text`, and how many bytes it takes; -1 for anything else. */
static int digit_at(const uint8_t *text, size_t size, size_t *taken) {
    uint32_t character;
    if (text[0] < 0x80) {
        *taken = 1;
        return text[0] >= '0' && text[0] <= '9' ? text[0] - '0' : -1;
    }
    if ((text[0] & MASK_2) == LEAD_2 && size >= 2 && is_continuation(text[1])) {
        character = (text[0] & 0x1fu) << 6 | (text[1] & 0x3fu);
        *taken = 2;
    } else if ((text[0] & MASK_3) == LEAD_3 && size >= 3 && is_continuation(text[1]) && is_continuation(text[2])) {
        character = (text[0] & 0x0fu) << 12 | (text[1] & 0x3fu) << 6 | (text[2] & 0x3fu);
        *taken = 3;
    } else {
        return -1;
    }
    for (size_t i = 0; i < sizeof ZEROS / sizeof ZEROS[0]; i++) {
        if (character >= ZEROS[i] && character <= ZEROS[i] + 9u)
            return (int)(character - ZEROS[i]);
    }
    return -1;
}

/* A number in [-max - 1, max]. */
static bool parse_integer(const uint8_t *text, size_t size, uint64_t max, int64_t *value) {
    bool negative = size > 0 && text[0] == '-';
    uint64_t magnitude = 0, limit = max + negative;
    size_t at = negative || (size > 0 && text[0] == '+') ? 1 : 0;
    if (at == size)
        return false;
    while (at < size) {
        size_t taken = 0;
        int digit = digit_at(text + at, size - at, &taken);
        if (digit < 0 || magnitude > (limit - (uint64_t)digit) / 10)
            return false;
        magnitude = magnitude * 10 + (uint64_t)digit;
        at += taken;
    }
    *value = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

bool pymq_java_int32(const uint8_t *text, size_t size, int32_t *value) {
    int64_t wide;
    if (!parse_integer(text, size, INT32_MAX, &wide))
        return false;
    *value = (int32_t)wide;
    return true;
}

bool pymq_java_int64(const uint8_t *text, size_t size, int64_t *value) {
    return parse_integer(text, size, INT64_MAX, value);
}

/* ---- Double --------------------------------------------------------------------------------------------------- */

#define DIGITS_MAX 800            /* enough to round any double correctly; more are one sticky digit */
#define EXPONENT_MAX 100000000    /* saturates: infinite or nothing long before */
#define EXACT_DIGITS 15           /* as an integer exactly a double */
#define EXACT_POWER 22            /* the largest power of ten that is */
#define TEXT_ROOM 32              /* for "0x", "e" or "p" and an exponent */

struct scan {
    const uint8_t *at, *end;
};

static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

static bool is_hex_digit(uint8_t c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/* The number behind e or p, saturated; false when there is none. */
static bool take_exponent(struct scan *scan, int64_t *exponent, bool *negative) {
    *negative = scan->at < scan->end && *scan->at == '-';
    if (scan->at < scan->end && (*scan->at == '-' || *scan->at == '+'))
        scan->at++;
    const uint8_t *first = scan->at;
    for (*exponent = 0; scan->at < scan->end && is_digit(*scan->at); scan->at++)
        *exponent = pymq_min64(*exponent * 10 + (*scan->at - '0'), EXPONENT_MAX);
    return scan->at > first;
}

static bool at_end_but_suffix(const struct scan *scan) {
    if (scan->at == scan->end)
        return true;
    return scan->at + 1 == scan->end && memchr("fFdD", *scan->at, 4) != NULL;
}

/* strtod whatever the process's locale. In glibc and musl the "C" locale is a constant: nothing is allocated. */
static double strtod_plain(const char *text) {
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double value = plain != (locale_t)0 ? strtod_l(text, NULL, plain) : strtod(text, NULL);
    if (plain != (locale_t)0)
        freelocale(plain);
    return value;
}

/* Significant digits as they are met. */
struct digits {
    char text[DIGITS_MAX + TEXT_ROOM];
    size_t kept;      /* in text */
    int64_t count;    /* met, from the first that is not zero on */
    int64_t trailing; /* zeros at their end */
    bool sticky;      /* one not kept was not zero */
};

static void add_digit(struct digits *digits, uint8_t digit) {
    digits->count++;
    digits->trailing = digit == '0' ? digits->trailing + 1 : 0;
    if (digits->kept < DIGITS_MAX)
        digits->text[digits->kept++] = (char)digit;
    else
        digits->sticky = digits->sticky || digit != '0';
}

/* digits * 10^exponent, rounded once. */
static double decimal_value(struct digits *digits, int64_t exponent) {
    static const double POWERS[EXACT_POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (digits->kept <= EXACT_DIGITS && exponent >= -EXACT_POWER && exponent <= EXACT_POWER) {
        uint64_t whole = 0;
        for (size_t i = 0; i < digits->kept; i++)
            whole = whole * 10 + (uint64_t)(digits->text[i] - '0');
        return exponent < 0 ? (double)whole / POWERS[-exponent] : (double)whole * POWERS[exponent];
    }
    size_t size = digits->kept;
    if (digits->sticky) {
        digits->text[size++] = '1';
        exponent--;
    }
    snprintf(digits->text + size, sizeof digits->text - size, "e%lld", (long long)exponent);
    return strtod_plain(digits->text);
}

/* FloatingDecimal.readJavaFormatString behind the sign. */
static bool parse_decimal(struct scan scan, double *value) {
    struct digits digits;
    digits.kept = 0;
    digits.count = digits.trailing = 0;
    digits.sticky = false;
    int64_t leading = 0, before_point = 0;
    bool point = false;
    for (; scan.at < scan.end; scan.at++) {
        uint8_t c = *scan.at;
        if (c == '.') {
            if (point)
                return false;
            point = true;
            continue;
        }
        if (!is_digit(c))
            break;
        before_point += !point;
        if (digits.count == 0 && c == '0')
            leading++;
        else
            add_digit(&digits, c);
    }
    int64_t significant = digits.count - digits.trailing;
    if (digits.count == 0 && leading == 0)
        return false;
    /* The value is 0.d1d2… * 10^exponent. */
    int64_t exponent = point ? before_point - leading : digits.count;
    if (scan.at < scan.end && (*scan.at == 'e' || *scan.at == 'E')) {
        int64_t shift;
        bool negative;
        scan.at++;
        if (!take_exponent(&scan, &shift, &negative))
            return false;
        exponent += negative ? -shift : shift;
    }
    if (!at_end_but_suffix(&scan))
        return false;
    if (significant == 0) {
        *value = 0.0;
        return true;
    }
    if ((int64_t)digits.kept > significant)
        digits.kept = (size_t)significant; /* zeros at the end say nothing */
    *value = decimal_value(&digits, exponent - (int64_t)digits.kept);
    return true;
}

/* FloatingDecimal.parseHexString behind the sign and "0x". */
static bool parse_hex(struct scan scan, double *value) {
    struct digits digits;
    digits.kept = 2;
    digits.count = digits.trailing = 0;
    digits.sticky = false;
    memcpy(digits.text, "0x", 2);
    int64_t after_point = 0, dropped = 0;
    bool point = false, any_before = false, any_after = false;
    for (; scan.at < scan.end; scan.at++) {
        if (*scan.at == '.') {
            if (point)
                return false;
            point = true;
            continue;
        }
        if (!is_hex_digit(*scan.at))
            break;
        any_before = any_before || !point;
        any_after = any_after || point;
        after_point += point;
        if (digits.count == 0 && *scan.at == '0')
            continue;
        dropped += digits.kept == DIGITS_MAX;
        add_digit(&digits, *scan.at);
    }
    int64_t shift;
    bool negative;
    if (!any_before && !any_after)
        return false;
    if (scan.at == scan.end || (*scan.at != 'p' && *scan.at != 'P'))
        return false;
    scan.at++;
    if (!take_exponent(&scan, &shift, &negative) || !at_end_but_suffix(&scan))
        return false;
    if (digits.count == 0) {
        *value = 0.0;
        return true;
    }
    int64_t exponent = (negative ? -shift : shift) + 4 * (dropped - after_point);
    if (digits.sticky) {
        digits.text[digits.kept++] = '1';
        exponent -= 4;
    }
    snprintf(digits.text + digits.kept, sizeof digits.text - digits.kept, "p%lld", (long long)exponent);
    *value = strtod_plain(digits.text);
    return true;
}

static bool is_rest(const struct scan *scan, const char *word) {
    size_t size = strlen(word);
    return (size_t)(scan->end - scan->at) == size && memcmp(scan->at, word, size) == 0;
}

bool pymq_java_double(const uint8_t *text, size_t size, double *value) {
    struct scan scan = {text, text + size};
    while (scan.at < scan.end && *scan.at <= ' ') /* String.trim */
        scan.at++;
    while (scan.end > scan.at && scan.end[-1] <= ' ')
        scan.end--;
    bool negative = scan.at < scan.end && *scan.at == '-', parsed;
    if (scan.at < scan.end && (*scan.at == '-' || *scan.at == '+'))
        scan.at++;
    if (is_rest(&scan, "NaN")) {
        *value = NAN;
        return true;
    }
    if (is_rest(&scan, "Infinity")) {
        *value = INFINITY;
        parsed = true;
    } else if (scan.end - scan.at > 1 && scan.at[0] == '0' && (scan.at[1] == 'x' || scan.at[1] == 'X')) {
        scan.at += 2;
        parsed = parse_hex(scan, value);
    } else {
        parsed = parse_decimal(scan, value);
    }
    if (parsed && negative)
        *value = -*value;
    return parsed;
}
