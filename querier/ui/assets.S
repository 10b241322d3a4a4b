/* SPDX-License-Identifier: Apache-2.0
 *
 * The page's bundle, made by querier/ui/build: an index (text) and the bytes it points into.
 */
    .section .rodata
    .balign 16
    .global ui_assets_index
    .hidden ui_assets_index
ui_assets_index:
    .incbin "assets.idx"
    .global ui_assets_index_end
    .hidden ui_assets_index_end
ui_assets_index_end:
    .byte 0
    .balign 16
    .global ui_assets_data
    .hidden ui_assets_data
ui_assets_data:
    .incbin "assets.bin"
    .global ui_assets_data_end
    .hidden ui_assets_data_end
ui_assets_data_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
