//! Integration tests of dart-env-vnc.

mod desktop;
mod desktop_qemu;
mod miniwob;
mod miniwob_attach;
mod needs;
mod osworld_fake;
mod osworld_files;
mod osworld_local;
mod osworld_server;
mod rfb_cases;
mod rfb_conformance;
mod rfb_core;
mod rfb_encodings;
mod rfb_episodes;
mod rfb_extensions;
mod rfb_faults;
mod rfb_fuzz;
mod rfb_hostile;
mod rfb_hostile_encodings;
mod rfb_recorded;
mod rfb_screens;
mod rfb_security;
mod rfb_server;
mod rfb_stream;
mod rfb_xserver;
mod rfb_xtigervnc;
