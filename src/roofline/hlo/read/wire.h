/* The protobuf wire format: reads varints and fields, never past the end of their message. Used for profiles and for HLO programs.
 *
 * A field is a tag (number * 8 + wire type) and a payload: a varint, 8 bytes, 4 bytes, or a length and that many bytes. `safe` is the end
 * of the whole buffer: nothing is read past it. Nothing here allocates memory.
 */
#ifndef ROOFLINE_HLO_WIRE_H
#define ROOFLINE_HLO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef XS_PEXT /* for x86 CPUs with the pext instruction */
#include <immintrin.h>
#endif

enum { XS_VARINT = 0, XS_EIGHT = 1, XS_BYTES = 2, XS_FOUR = 5 };

#define XS_TAG(number, wire) ((number) << 3 | (wire))

typedef enum {
    XS_FINE,
    XS_TRUNCATED,       /* the file ends inside a message */
    XS_SHORT_VARINT,    /* a number runs past the end of its message */
    XS_LONG_VARINT,     /* a number of more than 64 bits */
    XS_SHORT_BYTES,     /* a length runs past the end of its message */
    XS_WRONG_WIRE,      /* a wire type that does not exist, or not that of a field we know */
    XS_NO_FIELD,        /* field number 0 */
    XS_NEGATIVE,        /* a negative duration or number of occurrences */
    XS_OVERFLOW,        /* a time or a sum beyond 63 bits */
    XS_LATE_TIMESTAMP,  /* a line's timestamp follows its events, which were already read without it */
    XS_NO_MEMORY,
} xs_fault_kind;

typedef struct {
    xs_fault_kind kind;
    const uint8_t *at;
} xs_fault;

static inline const uint8_t *xs_fail(xs_fault *fault, xs_fault_kind kind, const uint8_t *at) {
    fault->kind = kind;
    fault->at = at;
    return NULL;
}

/* Reads a varint byte by byte: at the end of the buffer, and for varints of nine and ten bytes. */
static inline const uint8_t *xs_varint_bytewise(const uint8_t *p, const uint8_t *end, uint64_t *out, xs_fault *fault) {
    const uint8_t *start = p;
    uint64_t value = 0;
    for (int shift = 0; p < end; shift += 7) {
        uint8_t byte = *p++;
        if (shift == 63 && byte > 1) return xs_fail(fault, XS_LONG_VARINT, start);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return p;
        }
    }
    return xs_fail(fault, XS_SHORT_VARINT, start);
}

#if defined(__GNUC__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define XS_WORDS 1
#else
#define XS_WORDS 0
#endif

enum { XS_WORD = 8 };

/* Reads a varint of up to eight bytes with one 8-byte load, which must lie inside the buffer. NULL if the varint is longer. */
static inline const uint8_t *xs_word_varint(const uint8_t *p, uint64_t *out) {
#if XS_WORDS
    uint64_t word;
    memcpy(&word, p, XS_WORD);
    uint64_t stops = ~word & 0x8080808080808080u;
    if (!stops) return NULL;
    /* Keep the bytes up to the last one of the varint and clear their top bits. Then close the gaps: in each pair of bytes, of 16-bit
     * and of 32-bit words, the upper half moves down by 1, 2 and 4 bits. */
    uint64_t kept = (stops ^ (stops - 1)) & 0x7f7f7f7f7f7f7f7fu;
#ifdef XS_PEXT
    *out = _pext_u64(word, kept);
#else
    word &= kept;
    word -= (word & 0x7f007f007f007f00u) >> 1;
    uint64_t upper = word & 0x3fff00003fff0000u;
    word -= upper - (upper >> 2);
    *out = (word >> 32 << 28) | (uint32_t)word;
#endif
    return p + (__builtin_ctzll(stops) >> 3) + 1;
#else
    (void)p, (void)out;
    return NULL;
#endif
}

/* Reads a varint that must end at or before `end` and returns the byte after it; NULL on a fault. */
static inline const uint8_t *xs_varint(const uint8_t *p, const uint8_t *end, const uint8_t *safe, uint64_t *out, xs_fault *fault) {
    if (p < end && *p < 0x80) {
        *out = *p;
        return p + 1;
    }
    const uint8_t *after = safe - p >= XS_WORD ? xs_word_varint(p, out) : NULL;
    return after && after <= end ? after : xs_varint_bytewise(p, end, out, fault);
}

/* Two and four bytes as a little-endian number, which compilers turn into one load. */
static inline uint32_t xs_two(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static inline uint32_t xs_four(const uint8_t *p) { return xs_two(p) | xs_two(p + 2) << 16; }

/* Reads the length of a length-delimited field and returns where its payload begins; NULL on a fault. */
static inline const uint8_t *xs_length(const uint8_t *p, const uint8_t *end, const uint8_t *safe, size_t *length, xs_fault *fault) {
    const uint8_t *start = p;
    uint64_t value = 0;
    p = xs_varint(p, end, safe, &value, fault);
    if (!p) return NULL;
    if (value > (uint64_t)(end - p)) return xs_fail(fault, XS_SHORT_BYTES, start);
    *length = (size_t)value;
    return p;
}

/* The bits of a little-endian 8-byte payload. */
static inline uint64_t xs_eight(const uint8_t *p) {
    uint64_t bits = 0;
    for (int byte = 7; byte >= 0; byte--) bits = bits << 8 | p[byte];
    return bits;
}

/* Returns the byte after the payload of a field with this tag; NULL on a fault. */
static inline const uint8_t *xs_skip(uint64_t tag, const uint8_t *p, const uint8_t *end, const uint8_t *safe, xs_fault *fault) {
    uint64_t ignored;
    size_t length = 0;
    if (tag >> 3 == 0) return xs_fail(fault, XS_NO_FIELD, p);
    switch (tag & 7) {
        case XS_VARINT:
            return xs_varint(p, end, safe, &ignored, fault);
        case XS_EIGHT:
            return end - p < 8 ? xs_fail(fault, XS_SHORT_BYTES, p) : p + 8;
        case XS_FOUR:
            return end - p < 4 ? xs_fail(fault, XS_SHORT_BYTES, p) : p + 4;
        case XS_BYTES:
            p = xs_length(p, end, safe, &length, fault);
            return p ? p + length : NULL;
        default:
            return xs_fail(fault, XS_WRONG_WIRE, p);
    }
}

/* One field of any wire type, for messages that need not be read fast. */
typedef struct {
    uint64_t number;
    int wire;
    uint64_t value;       /* a varint, or the bits of 8 bytes */
    const uint8_t *begin; /* a length-delimited payload; if it runs past the end of the message, it ends there */
    const uint8_t *end;
} xs_field;

/* Reads the next field of a message and returns the byte after it; NULL on a fault. Must not be called at `end`. */
static inline const uint8_t *xs_next(const uint8_t *p, const uint8_t *end, const uint8_t *safe, xs_field *field, xs_fault *fault) {
    uint64_t tag = 0;
    size_t length = 0;
    const uint8_t *start = p;
    *field = (xs_field){0};
    p = xs_varint(p, end, safe, &tag, fault);
    if (!p) return NULL;
    field->number = tag >> 3;
    field->wire = (int)(tag & 7);
    if (field->number == 0) return xs_fail(fault, XS_NO_FIELD, start);
    switch (field->wire) {
        case XS_VARINT:
            return xs_varint(p, end, safe, &field->value, fault);
        case XS_EIGHT:
            if (end - p < 8) return xs_fail(fault, XS_SHORT_BYTES, p);
            field->value = xs_eight(p);
            return p + 8;
        case XS_FOUR:
            if (end - p < 4) return xs_fail(fault, XS_SHORT_BYTES, p);
            return p + 4; /* no field we know is 4 bytes wide */
        case XS_BYTES:
            field->begin = xs_length(p, end, safe, &length, fault);
            if (!field->begin) {
                uint64_t ignored;
                field->begin = xs_varint_bytewise(p, end, &ignored, &(xs_fault){0});
                field->end = field->begin ? end : NULL;
                return NULL;
            }
            field->end = field->begin + length;
            return field->end;
        default:
            return xs_fail(fault, XS_WRONG_WIRE, start);
    }
}

/* Adds two numbers; false, and `*sum` unchanged, on overflow. */
static inline bool xs_add(int64_t a, int64_t b, int64_t *sum) {
#if defined(__GNUC__)
    int64_t total;
    if (__builtin_add_overflow(a, b, &total)) return false;
    *sum = total;
#else
    if ((b > 0 && a > INT64_MAX - b) || (b < 0 && a < INT64_MIN - b)) return false;
    *sum = a + b;
#endif
    return true;
}

#endif
