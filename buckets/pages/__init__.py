"""Pages for people: self-contained HTML, made of templates beside this file."""
