package bench

import (
	"math"
	"slices"
	"time"
)

// known returns a known figure, rounded.
func known(v float64) *float64 {
	v = round(v, digits(v))
	return &v
}

// digits returns the decimals that keep about four significant digits.
func digits(v float64) int {
	switch v = math.Abs(v); {
	case v >= 1000:
		return 0
	case v >= 10:
		return 2
	}
	return 4
}

func round(v float64, digits int) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}

// rate returns n per second, or 0 if d is not above zero.
func rate(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// quotient returns a ÷ b, or nil if b is not above zero.
func quotient(a, b float64) *float64 {
	if b <= 0 {
		return nil
	}
	return known(a / b)
}

// median returns the median of values, which it does not sort; 0 if there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func rounded(values []float64) []float64 {
	if values == nil {
		return nil
	}
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = *known(v)
	}
	return out
}

// percentile returns a percentile of sorted samples by nearest rank; 0 if there are none.
func percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func milliseconds(d time.Duration) float64 { return *known(d.Seconds() * 1000) }
