/* SPDX-License-Identifier: Apache-2.0
 *
 * Scripts and styles that go into SVG and HTML answers, as bytes; see viewer.h.
 */
    .section .rodata
    .macro file name, path
    .global \name
    .hidden \name
\name:
    .incbin "\path"
    .global \name\()_end
    .hidden \name\()_end
\name\()_end:
    .byte 0
    .endm

    file viewer_svg_js, "querier/render/viewer_svg.js"
    file viewer_page_js, "querier/render/viewer_page.js"
    file viewer_page_css, "querier/render/viewer_page.css"
    .section .note.GNU-stack, "", %progbits
