package dashboard

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The size of a chart in its own units. The style sheet scales it to the width of the page.
const (
	chartWidth, chartHeight = 600, 120
	chartTicks              = 3 // lines above zero
)

// series is one line of a chart.
type series struct {
	Name   string
	Values []float64 // one for each step; NaN where it is unknown
}

// mark is an event that a chart shows as a vertical line.
type mark struct {
	At   time.Time
	Text string
}

// chart is a line chart, with all that its template needs.
type chart struct {
	Title    string
	From, To time.Time
	Step     time.Duration
	Series   []series
	Marks    []mark
	unit     func(float64) string // formats values
}

// drawn is a series as an SVG path.
type drawn struct{ Name, Path, Last string }

// top returns the value at the upper end of the chart: a round number.
func (c *chart) top() float64 {
	highest := 0.0
	for _, s := range c.Series {
		for _, v := range s.Values {
			if v > highest { // never true of NaN
				highest = v
			}
		}
	}
	return roundUp(highest/chartTicks) * chartTicks
}

// roundUp returns the next of 1, 2, 5, 10, 20 and so on that is not below v.
func roundUp(v float64) float64 {
	if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, of := range []float64{1, 2, 5, 10} {
		if of*power >= v*(1-1e-9) {
			return of * power
		}
	}
	return 10 * power
}

// Size is the value of the attribute viewBox.
func (c *chart) Size() string { return fmt.Sprintf("0 0 %d %d", chartWidth, chartHeight) }

// x returns the place of a step.
func (c *chart) x(i int) float64 {
	n := len(c.Series[0].Values)
	if n < 2 {
		return 0
	}
	return float64(i) / float64(n-1) * chartWidth
}

// Lines returns the series as paths. A path has a gap where a value is unknown.
func (c *chart) Lines() (lines []drawn) {
	top := c.top()
	for _, s := range c.Series {
		var path strings.Builder
		last, down := "–", false
		for i, v := range s.Values {
			if math.IsNaN(v) {
				down = false
				continue
			}
			pen := "L"
			if !down {
				pen = "M"
			}
			down, last = true, c.unit(v)
			fmt.Fprintf(&path, "%s%s %s", pen, place(c.x(i)), place(chartHeight*(1-v/top)))
		}
		lines = append(lines, drawn{s.Name, path.String(), last})
	}
	return lines
}

// place formats a coordinate.
func place(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// tick is a horizontal line with its value.
type tick struct{ Y, Text string }

// Ticks returns the horizontal lines from the top.
func (c *chart) Ticks() (ticks []tick) {
	top := c.top()
	for i := chartTicks; i >= 0; i-- {
		share := float64(i) / chartTicks
		ticks = append(ticks, tick{place(chartHeight * (1 - share)), c.unit(top * share)})
	}
	return ticks
}

// step is a step of the time with its values as a text, which the browser shows on hover.
type step struct{ X, Width, Text string }

// Steps returns the steps of the chart.
func (c *chart) Steps() (steps []step) {
	if len(c.Series) == 0 {
		return nil
	}
	n := len(c.Series[0].Values)
	width := float64(chartWidth) / float64(max(n, 1))
	layout := "15:04"
	if c.Step >= time.Hour {
		layout = "2006-01-02 15:04"
	}
	for i := range n {
		var text strings.Builder
		text.WriteString(c.From.Add(time.Duration(i)*c.Step).UTC().Format(layout) + " UTC")
		for _, s := range c.Series {
			if v := s.Values[i]; !math.IsNaN(v) {
				text.WriteString("\n" + s.Name + ": " + c.unit(v))
			}
		}
		steps = append(steps, step{place(float64(i) * width), place(width), text.String()})
	}
	return steps
}

// Events returns the marks of the chart's time, with their places.
func (c *chart) Events() (events []step) {
	whole := c.To.Sub(c.From)
	for _, m := range c.Marks {
		if share := float64(m.At.Sub(c.From)) / float64(whole); whole > 0 && share >= 0 && share <= 1 {
			events = append(events, step{X: place(share * chartWidth), Text: m.At.UTC().Format("2006-01-02 15:04:05") + " UTC\n" + m.Text})
		}
	}
	return events
}

// Summary describes the chart to those who do not see it.
func (c *chart) Summary() string {
	var parts []string
	for _, l := range c.Lines() {
		parts = append(parts, l.Name+" "+l.Last)
	}
	return c.Title + ", now: " + strings.Join(parts, ", ")
}

// Empty reports whether no value is known, or all are zero.
func (c *chart) Empty() bool {
	for _, s := range c.Series {
		for _, v := range s.Values {
			if v > 0 {
				return false
			}
		}
	}
	return true
}

// spark returns the points of a small line without axes, 100 wide and 20 high.
func spark(values []float64) string {
	highest := 0.0
	for _, v := range values {
		highest = max(highest, v)
	}
	if highest == 0 || len(values) < 2 {
		return ""
	}
	var points strings.Builder
	for i, v := range values {
		fmt.Fprintf(&points, "%s,%s ", place(float64(i)/float64(len(values)-1)*100), place(1+18*(1-v/highest)))
	}
	return points.String()
}
