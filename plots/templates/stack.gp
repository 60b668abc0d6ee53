# Memory of one run over its time, areas on top of each other. Variables come from the head that decodelab writes in front
# of this text: NAME DATA TITLE POINT XLABEL YLABEL CAPTION CAPTION2 EMPTY N FIRST LABEL[] LIMIT XMAX YMAX.

# Okabe and Ito's colours, dark and light in turn, so that neighbours differ in grey as well; what is free is pale.
array RGB[6] = [0x333333, 0xCC79A7, 0x0072B2, 0x56B4E9, 0x009E73, 0xF7E2B2]
rgb(i) = RGB[FIRST + i]

set title TITLE font 'sans-serif,17' offset 0, 0.4 noenhanced
set label 3 POINT at graph 0.5, 1.03 center font 'sans-serif,11' textcolor rgb '#555555' noenhanced
set xlabel XLABEL font 'sans-serif,14' noenhanced
set ylabel YLABEL font 'sans-serif,14' offset -0.5, 0 noenhanced
set tics font 'sans-serif,12' nomirror out
set format '%g'
set border 3 linecolor rgb '#555555' linewidth 1
set grid xtics ytics linetype 1 linewidth 0.7 linecolor rgb '#e3e3e3'
set xrange [0:XMAX]
set yrange [0:YMAX]
set key outside right top vertical Left reverse font 'sans-serif,12' noenhanced samplen 2 spacing 1.3
set lmargin 12
set bmargin 7.5
set label 1 CAPTION at screen 0.015, 0.062 font 'sans-serif,10' textcolor rgb '#777777' noenhanced
set label 2 CAPTION2 at screen 0.015, 0.028 font 'sans-serif,10' textcolor rgb '#777777' noenhanced
set label 4 EMPTY at graph 0.5, 0.5 center font 'sans-serif,13' textcolor rgb '#8a8a8a' noenhanced

# From the top down: each area reaches to the ground and the next one covers its lower part. The legend has that order.
do for [pass = 1:2] {
    if (pass == 1) {
        set terminal svg size 960,600 dynamic font 'sans-serif,13' background rgb 'white' noenhanced
        set output NAME.'.svg'
    } else {
        set terminal pngcairo size 1440,900 fontscale 1.35 linewidth 1.4 pointscale 1.4 font 'sans-serif,13' noenhanced
        set output NAME.'.png'
    }
    plot NaN notitle, \
         for [i = 1:(LIMIT > 0)] NaN with lines dashtype (14, 8) linewidth 2 linecolor rgb '#D55E00' title 'memory limit', \
         for [i = N:1:-1] DATA using 1:(sum [k = 1:i] column(k + 1)) with filledcurves y1=0 \
             fillstyle solid 1 noborder linecolor rgb rgb(i) title LABEL[i], \
         for [i = 1:(LIMIT > 0)] LIMIT with lines dashtype (14, 8) linewidth 2 linecolor rgb '#D55E00' notitle
    unset output
}
