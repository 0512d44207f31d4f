# Flow sizes of a web-search cluster: size in bytes, and share of flows of at most this size.
# Source: the curve "all flows" of figure 4 in M. Alizadeh et al., "Data Center TCP (DCTCP)",
# SIGCOMM 2010, as the points used by most later papers. Between two points shares grow
# linearly.
0 0
10000 0.15
20000 0.2
30000 0.3
50000 0.4
80000 0.53
200000 0.6
1000000 0.7
2000000 0.8
5000000 0.9
10000000 0.97
30000000 1
