//! Tests of the program as a user meets it: the real binary, real files.

mod mistakes;
mod program;
mod ring;
