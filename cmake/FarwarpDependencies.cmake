# What farwarp is built with. Boost.Context is linked statically and fmt compiled in, so that a binary runs on machines
# without them.
find_package(Threads REQUIRED)
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.74 REQUIRED COMPONENTS context)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)

add_library(farwarp_dependencies INTERFACE)
target_link_libraries(farwarp_dependencies INTERFACE
  Threads::Threads ${CMAKE_DL_LIBS} Boost::context fmt::fmt-header-only nlohmann_json::nlohmann_json)
# GCC 12 warns of overlapping copies inside std::string's operator+ where there are none (its bug 105329, mended in 13).
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

# farwarp_test(name source...): a GoogleTest program and its CTest entry; arguments after LABELS are CTest labels.
function(farwarp_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "TIMEOUT" "LABELS")
  if(NOT FARWARP_TESTS)
    return()
  endif()
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE farwarp_objects GTest::gtest GTest::gtest_main)
  target_compile_options(${name} PRIVATE -Wall -Wextra)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
