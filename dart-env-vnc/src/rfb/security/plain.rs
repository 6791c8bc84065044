//! Plain, a subtype of VeNCrypt: user name and password as they are. Right only inside TLS.

use super::Password;

/// Lengths, then the user's name and the password.
pub(super) fn write(user: &str, password: &Password, out: &mut Vec<u8>) {
    for length in [user.len(), password.0.len()] {
        out.extend((length as u32).to_be_bytes());
    }
    out.extend(user.bytes());
    out.extend(password.bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_first() {
        let mut out = Vec::new();
        write("ann", &Password::new("pä"), &mut out);
        assert_eq!(out, b"\0\0\0\x03\0\0\0\x03annp\xc3\xa4");
    }
}
