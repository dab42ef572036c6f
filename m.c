#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/mman.h>
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "tab.h"
static struct sock_filter ONE[]={{6,0,0,0x7fff0000}};
static int cmp(const void*a,const void*b){double x=*(double*)a,y=*(double*)b;return x<y?-1:x>y;}
int main(){ prctl(PR_SET_NO_NEW_PRIVS,1,0,0,0);
 struct {const char*n;struct sock_fprog p,q;} v[]={{"one",{1,ONE}},{"agent",{sizeof AGENT/8,AGENT}},{"nesting",{sizeof NESTING/8,NESTING}},{"init",{sizeof INIT/8,INIT}},{"init+agent",{sizeof INIT/8,INIT},{sizeof AGENT/8,AGENT}}};
 double*t=mmap(0,8,3,MAP_SHARED|MAP_ANONYMOUS,-1,0);
 for(int r=0;r<2;r++) for(int i=0;i<5;i++){ static double a[1000];
  for(int k=0;k<1000;k++){ if(!fork()){struct timespec s,e; if(v[i].q.len) syscall(SYS_seccomp,1,0,&v[i].p); clock_gettime(CLOCK_MONOTONIC,&s); if(syscall(SYS_seccomp,1,0,v[i].q.len?&v[i].q:&v[i].p)) perror("x"); clock_gettime(CLOCK_MONOTONIC,&e); *t=(e.tv_sec-s.tv_sec)*1e6+(e.tv_nsec-s.tv_nsec)/1e3; _exit(0);} wait(0); a[k]=*t;}
  qsort(a,1000,8,cmp); printf("%-12s %4d insns  min %.1f p10 %.1f p50 %.1f p90 %.1f us\n",v[i].n,v[i].p.len,a[0],a[100],a[500],a[900]);}
}
