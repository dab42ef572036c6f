//! Removes host paths from error texts (BP-34).

/// Replaces every absolute path in `text` with `<path>`.
///
/// A path begins at a `/` at the start of the text, or after white space or one of `"'(=:[<`. It ends before white
/// space, a quote, a bracket, a comma, a semicolon or a colon.
pub fn redact_paths(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let starts = before.is_whitespace() || "\"'`(=:[<".contains(before);
        let has_name = rest.peek().is_some_and(|next| !ends_path(*next));
        if c == '/' && starts && has_name {
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
            assert_eq!(redact_paths(text), clean);
        }
    }
}
