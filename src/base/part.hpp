// Parts of Penstock that are libraries of their own (penstock_module's PART): loaded when they are first needed, so that only
// programs that use them load what they need.
//
// A part has one function, which gives a table: PartHead, and what it offers. load_part checks that it is of this version and was
// linked to this copy of libpenstock. It never unloads a part, whose threads and objects may outlive who asked for it.
#pragma once

namespace penstock::base {

struct PartHead;

struct PartRequest {
  const char* what;     // for messages: "etcd", "data_plane=ucx"
  const char* library;  // libpenstock_etcd.so
  const char* entry;    // the name of its function
  const char* install;  // what a user does who does not have it: "install ... and build Penstock again"
  // The function, where it is linked into the program (test programs link a part's objects, and load nothing); else null.
  const PartHead* (*linked)();
  // The program may have other builds of the libraries that the part needs: each uses its own.
  bool own_libraries = false;
};

// Throws Error(unsupported) that says what is missing. Any thread; who calls keeps the result.
const PartHead& load_part(const PartRequest& request);

struct PartHead {
  const char* version;  // of the part; stays the first member in every version
  const PartHead& (*libpenstock)(const PartRequest&) = &load_part;  // as the part finds it: names its libpenstock
};

}  // namespace penstock::base
