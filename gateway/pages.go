package gateway

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"
)

// dashboard is a directory of files that is never left.
type dashboard struct{ root *os.Root }

// openDashboard opens dir, or none.
func openDashboard(dir string) (*dashboard, error) {
	if dir == "" {
		return nil, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening gateway.dashboard: %w", err)
	}
	return &dashboard{root}, nil
}

// Close frees the directory. That of none does nothing.
func (d *dashboard) Close() error {
	if d == nil {
		return nil
	}
	return d.root.Close()
}

// file serves the files of the dashboard. What is not there is told in words that the dashboard passes over.
func (g *Gateway) file(w http.ResponseWriter, r *http.Request) {
	isPage := r.URL.Path == "/" || r.URL.Path == "/index.html"
	if err := g.admit(r, read); err != nil {
		if isPage && strings.Contains(r.Header.Get("Accept"), "text/html") && !g.tokens.none() {
			w.Header().Set("Location", "login") // relative: a proxy may have put a path in front
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		writeRefusal(w, err)
		return
	}
	if g.dashboard == nil {
		if isPage {
			writeError(w, refuse(http.StatusNotFound, "No dashboard is served here, see gateway.dashboard. What can be asked is at /overview, /jobs/overview, /healthz, /readyz, /metrics."))
			return
		}
		writeError(w, refuse(http.StatusNotFound, "File not found."))
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if isPage {
		name = "index.html"
	}
	if err := g.dashboard.serve(w, r, name); err != nil {
		writeError(w, refuse(http.StatusNotFound, "File not found."))
	}
}

// serve writes one file.
func (d *dashboard) serve(w http.ResponseWriter, r *http.Request, name string) error {
	if !fs.ValidPath(name) {
		return fs.ErrNotExist
	}
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fs.ErrNotExist)
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, info.Name(), info.ModTime(), f)
	return nil
}

const loginHTML = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>enricher: log in</title>
<style>body{font:16px sans-serif;margin:4em auto;max-width:24em}input{width:100%;margin:.5em 0;padding:.5em;box-sizing:border-box}</style>
<h1>enricher</h1>
<form method="post"><label>Token<input type="password" name="token" autocomplete="current-password" autofocus required></label><input type="submit" value="Log in"></form>
</html>
`

func (g *Gateway) loginPage(w http.ResponseWriter) {
	if g.tokens.none() {
		writeError(w, refuse(http.StatusNotFound, "There is no token to log in with."))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=UTF-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'")
	fmt.Fprint(w, loginHTML)
}

// login takes a token and gives a cookie for it, which no script can read and no other site can have sent.
func (g *Gateway) login(w http.ResponseWriter, r *http.Request) {
	if site := g.foreignSite(r); site != "" {
		g.refusals.say(r, "it comes from a page of another site", "site", site)
		writeError(w, refuse(http.StatusForbidden, "The request was sent by a page of another site."))
		return
	}
	if err := r.ParseForm(); err != nil {
		writeError(w, refuse(http.StatusBadRequest, "The form could not be read."))
		return
	}
	granted := g.tokens.grants(strings.TrimSpace(r.PostForm.Get("token")))
	if granted == open {
		g.refusals.say(r, "its token is wrong")
		writeRefusal(w, refuse(http.StatusUnauthorized, "The token is wrong."))
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: g.tokens.cookie(granted, time.Now().Add(cookieLife)), MaxAge: int(cookieLife / time.Second),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil, Path: "/",
	})
	w.Header().Set("Location", "./") // relative, as above
	w.WriteHeader(http.StatusSeeOther)
}
