/* SPDX-License-Identifier: Apache-2.0
 *
 * vec_impl.h: the constants of the vector row that its writer and its reader share; the drawing is
 * in vec.h. No other file includes it.
 */
#ifndef COMMON_STORE_CODEC_VEC_IMPL_H
#define COMMON_STORE_CODEC_VEC_IMPL_H

#define VEC_VERSION   1
#define VEC_CRC_BYTES 4

#define VEC_SATURATED 0x01
#define VEC_WRITES    0x02
#define VEC_SECTIONS  0x04
#define VEC_UNKNOWN   0xf8 /* flags of later versions */

#define VEC_FORM_PLANES   0x0f
#define VEC_FORM_SCALE    0x10
#define VEC_FORM_ESCAPES  0x20
#define VEC_FORM_OVERFLOW 0x40
#define VEC_FORM_UNKNOWN  0x80

#endif
