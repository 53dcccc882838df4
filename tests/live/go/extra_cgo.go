package main

// #include <stdlib.h>
// extern int goBack(int);
// static int __attribute__((noinline)) in_c(int n) { return goBack(n) + 1; }
// static int from_go(int n) { return in_c(n); }
import "C"

import (
	"sync"
	"sync/atomic"
)

var backCalls int64

//export goBack
func goBack(n C.int) C.int {
	atomic.AddInt64(&backCalls, 1)
	return n * 2
}

// Goroutines that go through C and back, on threads that C made.
//
//go:noinline
func extra() int {
	var wait sync.WaitGroup
	var sum int64
	for i := 0; i < 200; i++ {
		wait.Add(1)
		go func(i int) {
			defer wait.Done()
			atomic.AddInt64(&sum, int64(C.from_go(C.int(i))))
		}(i)
	}
	wait.Wait()
	return int(sum)
}
