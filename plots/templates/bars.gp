# Groups of bars, one group a category. Variables come from the head that decodelab writes in front of this text:
# NAME DATA TITLE XLABEL YLABEL KEYTITLE CAPTION CAPTION2 LOGY SPREAD N LABEL[] COLOUR[] MARK[] YMIN YMAX CATEGORIES SLANTED.

# Okabe and Ito's colours; bars that share a colour differ in their pattern.
array RGB[7] = [0x0072B2, 0xD55E00, 0x009E73, 0xCC79A7, 0xE69F00, 0x56B4E9, 0x333333]
array PATTERN[6] = [3, 1, 2, 4, 5, 6]
rgb(i) = RGB[1 + (COLOUR[i] - 1) % 7]
pattern(i) = PATTERN[1 + (MARK[i] - 1) % 6]
WIDTH = 0.8 / (N > 0 ? N : 1)
at(c, i) = c + WIDTH * (i - (N + 1) / 2.0)

set title TITLE font 'sans-serif,17' offset 0, 0.4 noenhanced
set xlabel XLABEL font 'sans-serif,14' noenhanced
set ylabel YLABEL font 'sans-serif,14' offset -0.5, 0 noenhanced
set tics font 'sans-serif,12' nomirror out
set xtics scale 0 noenhanced
if (SLANTED) set xtics rotate by -25
set border 3 linecolor rgb '#555555' linewidth 1
set grid ytics linetype 1 linewidth 0.7 linecolor rgb '#e3e3e3'
set xrange [-0.6:CATEGORIES - 0.4]
if (LOGY) set logscale y
set yrange [YMIN:YMAX]
set boxwidth WIDTH * 0.92 absolute
set style fill pattern border
set key outside right top vertical Left reverse title KEYTITLE font 'sans-serif,12' noenhanced samplen 2 spacing 1.3
set lmargin 12
set bmargin (SLANTED ? 10.5 : 7.5)
set label 1001 CAPTION at screen 0.015, 0.062 font 'sans-serif,10' textcolor rgb '#777777' noenhanced
set label 1002 CAPTION2 at screen 0.015, 0.028 font 'sans-serif,10' textcolor rgb '#777777' noenhanced

do for [pass = 1:2] {
    if (pass == 1) {
        set terminal svg size 960,600 dynamic font 'sans-serif,13' background rgb 'white' noenhanced
        set output NAME.'.svg'
    } else {
        set terminal pngcairo size 1440,900 fontscale 1.35 linewidth 1.4 pointscale 1.4 font 'sans-serif,13' noenhanced
        set output NAME.'.png'
    }
    if (SPREAD) {
        plot NaN notitle, \
             for [i = 1:N] DATA using (at($1, i)):(column(3 * i - 1)) with boxes \
                 fillstyle pattern pattern(i) linecolor rgb rgb(i) title LABEL[i], \
             for [i = 1:N] DATA using (at($1, i)):(column(3 * i)):(0):(column(3 * i + 1) - column(3 * i)) \
                 with vectors heads size screen 0.005, 90 fixed linewidth 1.4 linecolor rgb '#222222' notitle
    } else {
        plot NaN notitle, \
             for [i = 1:N] DATA using (at($1, i)):(column(3 * i - 1)) with boxes \
                 fillstyle pattern pattern(i) linecolor rgb rgb(i) title LABEL[i]
    }
    unset output
}
