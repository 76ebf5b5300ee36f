# The dependencies of farwarp. Boost.Context is linked statically. fmt is a shared library, unless a binary is to run on machines that do not
# have it: as headers only it takes nearly half of the time of a build.
option(FARWARP_FMT_HEADER_ONLY "Compile fmt into the binary, which then runs on machines without it" OFF)
find_package(Threads REQUIRED)
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.74 REQUIRED COMPONENTS context)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
# For binaries that run on machines without it: -DSQLite3_LIBRARY=/usr/lib/x86_64-linux-gnu/libsqlite3.a
find_package(SQLite3 3.35 REQUIRED)
find_package(ZLIB REQUIRED)  # ZLIB_USE_STATIC_LIBS=ON: static
set(farwarp_fmt $<IF:$<BOOL:${FARWARP_FMT_HEADER_ONLY}>,fmt::fmt-header-only,fmt::fmt>)

add_library(farwarp_dependencies INTERFACE)
target_link_libraries(farwarp_dependencies INTERFACE
  Threads::Threads ${CMAKE_DL_LIBS} Boost::context ${farwarp_fmt} nlohmann_json::nlohmann_json ZLIB::ZLIB)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(farwarp_dependencies INTERFACE -Wno-psabi)  # notes on an ABI that changed in GCC 4.6
endif()
# GCC 12 falsely warns of overlapping copies inside std::string's operator+ (GCC bug 105329, fixed in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(farwarp_dependencies INTERFACE -Wno-restrict)
endif()
if(FARWARP_SANITIZE)
  target_compile_options(farwarp_dependencies INTERFACE -fsanitize=${FARWARP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(farwarp_dependencies INTERFACE -fsanitize=${FARWARP_SANITIZE})
endif()
if(FARWARP_COVERAGE)
  target_compile_options(farwarp_dependencies INTERFACE --coverage -O1)
  target_link_options(farwarp_dependencies INTERFACE --coverage)
endif()

if(FARWARP_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
endif()

# farwarp_test(name source... [TIMEOUT seconds] [SHARDS n] [LABELS label...]): a GoogleTest program and its CTest entry. With SHARDS, n
# entries share the tests of the program. LABELS are CTest labels. The default timeout is 300 s. Tests with long timeouts start first: a
# long one that starts last leaves the other cores idle.
function(farwarp_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "TIMEOUT;SHARDS" "LABELS")
  if(NOT FARWARP_TESTS)
    return()
  endif()
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE farwarp_objects GTest::gtest GTest::gtest_main)
  target_compile_options(${name} PRIVATE -Wall -Wextra $<$<CONFIG:Release>:-O1>)  # compiled once, run for seconds
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    set(test ${name})
    if(ARG_SHARDS GREATER 1)
      set(test ${name}_${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${test} COMMAND ${name})
    set_tests_properties(${test} PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()
