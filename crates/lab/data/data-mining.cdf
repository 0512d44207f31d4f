# Flow sizes of a data-mining cluster: size in bytes, and share of flows of at most this size.
# Source: the curve of flow sizes in figure 2 of A. Greenberg et al., "VL2: A Scalable and Flexible
# Data Center Network", SIGCOMM 2009, as the points used by most later papers. Between two
# points shares grow linearly.
0 0
180 0.1
216 0.2
560 0.3
900 0.4
1100 0.5
1870 0.6
3160 0.7
10000 0.8
400000 0.9
3160000 0.95
100000000 0.98
1000000000 1
