// Thousands of goroutines that move between threads and whose stacks grow inside probed functions.
// Says how often it called what. Reads a word at the start of each round; an empty line ends it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

const goroutines = 2000

var leafCalls, growCalls, passCalls, pairCalls, deferCalls, switchCalls, calmCalls int64

// No stack check: too small to need one.
//
//go:noinline
func leaf(a, b uint64) uint64 {
	return a*31 + b
}

// 400 bytes a call: the first calls of a new goroutine move its stack several times.
//
//go:noinline
func grow(depth int, seed uint64) uint64 {
	var pad [48]uint64
	atomic.AddInt64(&growCalls, 1)
	for i := range pad {
		pad[i] = seed + uint64(i)*uint64(depth+1)
	}
	if depth == 0 {
		return pad[int(seed%48)]
	}
	below := grow(depth-1, seed*7+1)
	return below ^ pad[int(below%48)]
}

// More than a small frame: the other form of the stack check.
//
//go:noinline
func pass(in <-chan uint64, out chan<- uint64) uint64 {
	var pad [300]uint64
	atomic.AddInt64(&passCalls, 1)
	value := <-in
	for i := range pad {
		pad[i] = value ^ uint64(i)
	}
	runtime.Gosched()
	out <- pad[int(value%300)]
	return pad[299]
}

// Larger than any guard: the third form.
//
//go:noinline
func huge(seed uint64) uint64 {
	var pad [2000]uint64
	for i := range pad {
		pad[i] = seed + uint64(i)
	}
	return pad[int(seed%2000)]
}

//go:noinline
func pair(a uint64, b uint64, c string, d float64) (uint64, string) {
	atomic.AddInt64(&pairCalls, 1)
	return a + b + uint64(len(c)) + uint64(d), c
}

//go:noinline
func recovers(seed uint64) (out uint64) {
	atomic.AddInt64(&deferCalls, 1)
	defer func() {
		if r := recover(); r != nil {
			out = seed + uint64(r.(int))
		}
	}()
	panics(int(seed % 1000))
	return 1
}

//go:noinline
func panics(value int) {
	if value%3 == 0 {
		panic(value)
	}
	atomic.AddInt64(&calmCalls, 1)
}

//go:noinline
func choose(n uint64) uint64 {
	atomic.AddInt64(&switchCalls, 1)
	switch n % 16 {
	case 0:
		return leaf(n, 1)
	case 1:
		return n * 3
	case 2:
		return n ^ 9
	case 3:
		return n + 77
	case 4:
		return n << 3
	case 5:
		return n >> 1
	case 6:
		return n * n
	case 7:
		return n - 8
	case 8:
		return n | 64
	case 9:
		return n &^ 5
	case 10:
		return n * 11
	case 11:
		return n % 97
	}
	return n
}

func work(id int, wait *sync.WaitGroup, sum *uint64) {
	defer wait.Done()
	if id%50 == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	seed := uint64(id)
	value := grow(id%40, seed)
	left, right := make(chan uint64), make(chan uint64)
	go func() { pass(left, right) }()
	left <- value
	value ^= <-right
	for i := 0; i < 20; i++ {
		value = leaf(value, uint64(i))
		atomic.AddInt64(&leafCalls, 1)
		if value%16 == 0 {
			atomic.AddInt64(&leafCalls, 1)
		}
		value ^= choose(value)
	}
	a, s := pair(value, seed, fmt.Sprint(id), float64(id))
	value ^= a + uint64(len(s)) + recovers(value) + huge(value)
	atomic.AddUint64(sum, value)
}

func round() uint64 {
	var wait sync.WaitGroup
	var sum uint64
	wait.Add(goroutines)
	for id := 0; id < goroutines; id++ {
		go work(id, &wait, &sum)
		if id%500 == 0 {
			runtime.GC()
		}
	}
	wait.Wait()
	return sum
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	fmt.Println("ready", extra())
	for lines.Scan() && lines.Text() != "" {
		for _, count := range []*int64{&leafCalls, &growCalls, &passCalls, &pairCalls, &deferCalls,
			&switchCalls, &calmCalls, &backCalls} {
			*count = 0
		}
		sum := round() + uint64(extra())
		answer, _ := json.Marshal(map[string]any{"sum": sum, "calls": map[string]int64{
			"main.leaf": leafCalls, "main.grow": growCalls, "main.pass": passCalls,
			"main.pair": pairCalls, "main.recovers": deferCalls, "main.panics": deferCalls,
			"main.huge": goroutines, "main.choose": switchCalls, "main.work": goroutines,
			"main.round": 1, "main.extra": 1, "main.goBack": backCalls},
			"unfinished": map[string]int64{"main.panics": deferCalls - calmCalls}})
		fmt.Println(string(answer))
	}
}
