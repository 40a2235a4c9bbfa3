package catcher

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/posthaste-mq/posthaste"
)

// deletion is the data of a confirmation.
type deletion struct {
	Effect, Button string
	// Action is where the form is sent, and Back leads away from it.
	Action, Back string
}

// mayDelete reports whether the viewer may delete mails, and otherwise answers.
func mayDelete(w http.ResponseWriter, r *http.Request) bool {
	if placeOf(r).Deletes {
		return true
	}
	fail(w, r, posthaste.CodeDenied, "", `Deleting caught mails needs a token with the scopes "read:payload" and "operate".`)
	return false
}

func (c *Catcher) confirmAll(w http.ResponseWriter, r *http.Request) {
	if !mayDelete(w, r) {
		return
	}
	base, kept := placeOf(r).Base, len(c.Mails())
	effect := fmt.Sprintf("All %d caught mails are removed for good, also those that a search does not show, and those that arrive before you confirm.", kept)
	if kept == 1 {
		effect = "The caught mail is removed for good, and mails that arrive before you confirm."
	}
	render(w, r, "delete", view{Title: "Delete all caught mails", Data: deletion{effect, "Delete all", base + "/delete", base + "/"}})
}

func (c *Catcher) confirmOne(w http.ResponseWriter, r *http.Request, m Mail) {
	if mayDelete(w, r) {
		to := placeOf(r).Base + "/" + m.ID
		render(w, r, "delete", view{Title: "Delete caught mail: " + titleOf(m), Data: deletion{"The mail is removed for good.", "Delete", to + "/delete", to}})
	}
}

func (c *Catcher) serveDelete(w http.ResponseWriter, r *http.Request) {
	if !mayDelete(w, r) {
		return
	}
	if r.URL.RawQuery != "" {
		fail(w, r, posthaste.CodeInvalid, "", "all caught mails are deleted at once: leave out "+strconv.Quote(r.URL.RawQuery)+", or delete single ones by "+placeOf(r).Base+"/ID")
		return
	}
	c.Delete()
	deleted(w, r)
}

func (c *Catcher) serveDeleteOne(w http.ResponseWriter, r *http.Request, m Mail) {
	if mayDelete(w, r) {
		c.Delete(m.ID)
		deleted(w, r)
	}
}

// deleted answers a deletion. A form is redirected to the list.
func deleted(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		http.Redirect(w, r, placeOf(r).Base+"/", http.StatusSeeOther)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
