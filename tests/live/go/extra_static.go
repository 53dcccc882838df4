package main

var backCalls int64

//go:noinline
func extra() int { return 0 }
