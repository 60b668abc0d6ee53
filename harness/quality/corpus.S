/* The bundled text, as bytes of the program. DLAB_CORPUS is its path, given by the build. */
    .section .rodata
    .global dlab_corpus_begin
    .global dlab_corpus_end
    .balign 16
dlab_corpus_begin:
    .incbin DLAB_CORPUS
dlab_corpus_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
