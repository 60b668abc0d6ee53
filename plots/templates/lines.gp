# Curves over an axis of numbers. Variables come from the head that decodelab writes in front of this text:
# NAME DATA TITLE XLABEL YLABEL KEYTITLE REFERENCE CAPTION CAPTION2 LOGX LOGY SPREAD N LABEL[] COLOUR[] MARK[] XMIN XMAX
# YMIN YMAX.

# Okabe and Ito's colours, told apart with every kind of colour vision; marks and dashes say the same once more.
array RGB[7] = [0x0072B2, 0xD55E00, 0x009E73, 0xCC79A7, 0xE69F00, 0x56B4E9, 0x333333]
array SHAPE[7] = [7, 5, 9, 11, 13, 6, 4]
array DASH[7] = [1, 2, 4, 3, 5, 1, 2]
rgb(i) = RGB[1 + (COLOUR[i] - 1) % 7]
shape(i) = SHAPE[1 + (MARK[i] - 1) % 7]
dash(i) = DASH[1 + (MARK[i] - 1) % 7]

set title TITLE font 'sans-serif,17' offset 0, 0.4 noenhanced
set xlabel XLABEL font 'sans-serif,14' noenhanced
set ylabel YLABEL font 'sans-serif,14' offset -0.5, 0 noenhanced
set tics font 'sans-serif,12' nomirror out
set border 3 linecolor rgb '#555555' linewidth 1
set grid xtics ytics linetype 1 linewidth 0.7 linecolor rgb '#e3e3e3'
if (LOGX) set logscale x
if (LOGY) set logscale y
set xrange [XMIN:XMAX]
set yrange [YMIN:YMAX]
set key outside right top vertical Left reverse title KEYTITLE font 'sans-serif,12' noenhanced samplen 3 spacing 1.25
set lmargin 12
set bmargin 7.5
set label 1 CAPTION at screen 0.015, 0.062 font 'sans-serif,10' textcolor rgb '#777777' noenhanced
set label 2 CAPTION2 at screen 0.015, 0.028 font 'sans-serif,10' textcolor rgb '#777777' noenhanced

do for [pass = 1:2] {
    if (pass == 1) {
        set terminal svg size 960,600 dynamic font 'sans-serif,13' background rgb 'white' noenhanced
        set output NAME.'.svg'
    } else {
        set terminal pngcairo size 1440,900 fontscale 1.35 linewidth 1.4 pointscale 1.4 font 'sans-serif,13' noenhanced
        set output NAME.'.png'
    }
    plot NaN notitle, \
         for [i = 1:(SPREAD ? N : 0)] DATA index (i - 1) using 1:3:(0):($4 - $3) with vectors \
             heads size screen 0.005, 90 fixed linetype 1 linecolor rgb rgb(i) linewidth 1.2 notitle, \
         for [i = 1:N] DATA index (i - 1) using 1:2 with linespoints \
             dashtype dash(i) linecolor rgb rgb(i) linewidth 2.2 pointtype shape(i) pointsize 1.0 title LABEL[i], \
         for [i = 1:(REFERENCE eq '' ? 0 : N)] DATA index (i - 1) using 1:6 with lines \
             dashtype (14, 8) linecolor rgb rgb(i) linewidth 1 notitle, \
         for [i = 1:(REFERENCE ne '')] NaN with lines \
             dashtype (14, 8) linecolor rgb '#333333' linewidth 1 title REFERENCE
    unset output
}
