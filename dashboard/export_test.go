package dashboard

import "github.com/posthaste-mq/posthaste"

// Route is a page or an action, for tests of all of them.
type Route struct {
	Method, Path string
	Scope        posthaste.Scope
	Own          bool
}

// Routes returns all pages and actions.
func Routes(engine posthaste.Store) (all []Route) {
	d := &dashboard{source: source{engine: engine}}
	for _, r := range d.routes() {
		all = append(all, Route{r.method, r.path, r.scope, r.own})
	}
	return all
}
