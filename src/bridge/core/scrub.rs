//! Error texts without host paths (BP-34).

/// Puts `<path>` in place of every absolute path in `text`.
///
/// A path begins at a `/` that follows nothing, white space or one of `"'(=:[<` and ends before white space, a
/// quote, a bracket, a comma, a semicolon or a colon.
pub fn scrub(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let starts = before.is_whitespace() || "\"'`(=:[<".contains(before);
        let goes_on = rest.peek().is_some_and(|next| !ends_path(*next));
        if c == '/' && starts && goes_on {
            while rest.next_if(|next| !ends_path(*next)).is_some() {}
            out.push_str("<path>");
            before = '>';
        } else {
            out.push(c);
            before = c;
        }
    }
    out
}

fn ends_path(c: char) -> bool {
    c.is_whitespace() || "\"'`)]>,;:".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bp_34_absolute_paths_are_taken_out_and_nothing_else() {
        for (text, clean) in [
            ("execve /opt/x/agent: No such file", "execve <path>: No such file"),
            ("\"/a b\" (/c) x=/d,/e", "\"<path> b\" (<path>) x=<path>,/e"),
            ("and/or 1/2 / a", "and/or 1/2 / a"),
            ("/", "/"),
            ("a:/root", "a:<path>"),
        ] {
            assert_eq!(scrub(text), clean);
        }
    }
}
